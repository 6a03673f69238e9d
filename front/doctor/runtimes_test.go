package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"corral/job"
	"corral/policy/runtimes"
)

func TestVersionOf(t *testing.T) {
	for said, want := range map[string]string{
		"v20.20.2\n":                      "20.20.2",
		"Python 3.11.2":                   "3.11.2",
		"go version go1.26.8 linux/amd64": "1.26.8",
		"OpenJDK 64-Bit Server VM warning: removed in 13\ninfo: kotlinc-jvm 1.3-SNAPSHOT (JRE 17.0.1)": "1.3",
		"This is perl 5, version 36, subversion 0 (v5.36.0)":                                           "5.36.0",
		"\x1b[2J": "",
		"":        "",
	} {
		if got := versionOf(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestRuntimesText(t *testing.T) {
	r := Runtimes{
		Runtimes: []Runtime{
			{Name: "python", Program: "/usr/bin/python3", Version: "3.11.2", Start: 12},
			{Name: "go", Program: "/usr/bin/go", Version: "1.26", Start: 6000, Remedy: "compile ahead"},
			{Name: "ruby", Program: "/opt/\x1b[2J", Problem: "ended with failure: \x1b]0;x", Remedy: "apt-get install ruby"},
			{Name: "php", Problem: "looked for php", Remedy: "apt-get install php-cli"},
		},
		Toolchains: []string{"/home/a/.rustup/toolchains/x", "/home/a/.nvm/versions/node/v20"},
	}
	const want = `runtime     program           version          start
python      /usr/bin/python3  3.11.2           12 ms
go          /usr/bin/go       1.26           6000 ms
            faster: compile ahead
ruby        /opt/\x1b[2J                       FAILS
            ended with failure: \x1b]0;x
            fix: apt-get install ruby
php         -
            looked for php
            fix: apt-get install php-cli

The configuration does not name these toolchains, so no job sees them. To show them to jobs, set:

  toolchains: [/home/a/.rustup/toolchains/x, /home/a/.nvm/versions/node/v20]
`
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	var back Runtimes
	if err := errors.Join(r.WriteJSON(&b), json.Unmarshal([]byte(b.String()), &back)); err != nil || len(back.Runtimes) != 4 || back.Runtimes[1] != r.Runtimes[1] {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestRuntimesExitCode(t *testing.T) {
	works, broken, missing := Runtime{Program: "/x"}, Runtime{Program: "/x", Problem: "no"}, Runtime{Problem: "no"}
	for _, tt := range []struct {
		list []Runtime
		want int
	}{
		{[]Runtime{works, works}, 0},
		{[]Runtime{works, missing}, 0},
		{[]Runtime{works, broken, missing}, 1},
		{[]Runtime{broken, missing}, 2},
		{nil, 2},
	} {
		if got := (Runtimes{Runtimes: tt.list}).ExitCode(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.list, got, tt.want)
		}
	}
}

// TestRuntimesWithoutSupervisor: runtimes that were not tried are not reported as working.
func TestRuntimesWithoutSupervisor(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"none":        {context.Background(), job.ErrUnavailable, job.ErrUnavailable.Error()},
		"interrupted": {ended, nil, context.Canceled.Error()},
	} {
		s := Subject{Err: tt.err}
		if tt.err == nil {
			s.Err = tt.ctx.Err()
		}
		r := ExamineRuntimes(tt.ctx, s, runtimes.Find(runtimes.Places{}), nil)
		if len(r.Runtimes) != len(runtimes.Runtimes()) || r.ExitCode() != 2 {
			t.Errorf("%s: %+v", name, r)
		}
		for _, one := range r.Runtimes {
			if one.Program != "" && one.Problem != tt.want || one.Problem == "" {
				t.Errorf("%s: %+v", name, one)
			}
		}
	}
}
