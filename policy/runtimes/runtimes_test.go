package runtimes

import (
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestSamples checks that each runtime has a sample.
func TestSamples(t *testing.T) {
	var have []string
	for _, s := range samples {
		have = append(have, s.Runtime)
	}
	if !slices.Equal(have, Runtimes()) || !slices.Equal(have, job.Runtimes()) {
		t.Errorf("samples of %q, runtimes %q, names %q", have, Runtimes(), job.Runtimes())
	}
}

// TestRuntimes runs every language in jails with the default limits of a job.
func TestRuntimes(t *testing.T) {
	b := newBench(t, goToolchain(t))
	for _, s := range samples {
		t.Run(s.Runtime, func(t *testing.T) {
			b.t = t
			r, _ := Lookup(s.Runtime)
			// Compilers take seconds of CPU time each: their other edge cases run only in soak runs.
			every := sandboxtest.Soak() || !compiled[s.Runtime]
			if every {
				if d := b.run(try{runtime: s.Runtime, code: &r.Hello}); d.out != "hello\n" || d.err != "" || d.Status != job.Success {
					t.Errorf("hello: %+v, %q, %q", d.Result, d.out, d.err)
				}
			}
			args := []string{"a b", "", "--help", "-x", "ü'\"$(id)\\", "*"}
			want := "[" + strings.Join(args, "]\n[") + "]\n" + "líne\ngrüße, 世界\n"
			d := b.run(try{runtime: s.Runtime, code: &s.Talk, args: args, stdin: "líne\n"})
			if d.out != want || d.err != "oops\n" || d.ExitCode != 7 || d.Status != job.Failure {
				t.Errorf("talk: %+v\n%q, want\n%q; %q", d.Result, d.out, want, d.err)
			}
			if d := b.run(try{runtime: s.Runtime, args: r.Version}); d.Status != job.Success || d.out+d.err == "" {
				t.Errorf("version: %+v, %q, %q", d.Result, d.out, d.err)
			}
			if s.Runtime == "kotlin" && !sandboxtest.Soak() { // its compiler takes longest, and a failing one is treated as that of Rust
				return
			}
			if d := b.run(try{runtime: s.Runtime, code: &s.Wrong}); d.ExitCode < 1 || d.out != "" || !strings.Contains(d.err, s.Word) {
				t.Errorf("wrong: %+v, %q, %q, want %q", d.Result, d.out, d.err, s.Word)
			}
			if every {
				d = b.run(try{runtime: s.Runtime, code: &s.Endless, limits: job.Limits{Wall: seconds(1)}})
				if d.Status != job.Timeout || d.Usage.Wall < seconds(1) {
					t.Errorf("endless: %+v, %q", d.Result, d.err)
				}
			}
		})
	}
	t.Run("go's cache", func(t *testing.T) {
		b.t = t
		b.write("go.mod", "module example.com/x\n", 0o644)
		b.write("x.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(1) }\n", 0o644)
		d := b.run(try{runtime: "go", args: []string{"build", "-v", "-o", "/tmp/x", "."}}) // -v prints what is compiled
		if d.Status != job.Success || d.err != "example.com/x\n" {
			t.Errorf("%+v, %q, %q", d.Result, d.out, d.err)
		}
		script := "go build -v -o /tmp/x . 2>&1; touch x.go; go build -v -o /tmp/y . 2>&1"
		if d := b.run(try{runtime: "shell", code: &script}); d.Status != job.Success || d.out != "example.com/x\n" {
			t.Errorf("shell: %+v, %q, %q", d.Result, d.out, d.err)
		}
	})
}

// goToolchain returns a toolchain directory with a Go cache prebuilt for the samples.
func goToolchain(t *testing.T) string {
	t.Helper()
	c, missing := Find(Places{}).Choose("go", "", nil)
	if missing != "" {
		t.Fatal(missing)
	}
	return sandboxtest.GoCache(t, c.Path)
}
