package scan

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// grow creates dirs directories in three levels with ten files each.
func grow(t testing.TB, dir string, dirs int) {
	t.Helper()
	for i := range dirs {
		d := filepath.Join(dir, fmt.Sprint("a", i/500), fmt.Sprint("b", i/20), fmt.Sprint("c", i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			if err := os.WriteFile(filepath.Join(d, fmt.Sprint("file", j)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkChanged measures a pass over trees of several sizes.
func BenchmarkChanged(b *testing.B) {
	sandboxtest.Require(b, sandboxtest.Program("git"))
	empty, tiny, large, commit := b.TempDir(), b.TempDir(), b.TempDir(), b.TempDir()
	shell(b, empty, "git init -q; mkdir src; echo > src/main.go; git add .; git commit -qm one")
	for _, dir := range []string{tiny, large, commit} {
		shell(b, dir, repository)
	}
	grow(b, large, 5000)
	for _, bc := range []struct {
		name, dir string
		job       func(i int)
	}{
		{"one directory", empty, nil},
		{"tiny with a nested repository", tiny, nil},
		{"tiny and a file in the root and .git", commit, func(i int) {
			_ = os.WriteFile(filepath.Join(commit, fmt.Sprint("f", i)), nil, 0o644)
			_ = os.WriteFile(filepath.Join(commit, ".git", "index.lock"), nil, 0o644)
			_ = os.Remove(filepath.Join(commit, fmt.Sprint("f", i)))
			_ = os.Remove(filepath.Join(commit, ".git", "index.lock"))
		}},
		{"5,000 directories", large, nil},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := scanner(b, bc.dir, Bounds{})
			baseline(b, s)
			since := settle()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if bc.job != nil {
					b.StopTimer()
					bc.job(i)
					i++
					b.StartTimer()
				}
				if rep, err := s.Changed(since); err != nil || rep.Paths != nil || rep.Incomplete {
					b.Fatalf("%+v, %v", rep, err)
				}
			}
		})
	}
	b.Run("Baseline of 5,000 directories", func(b *testing.B) {
		s := scanner(b, large, Bounds{})
		for b.Loop() {
			baseline(b, s)
		}
	})
	b.Run("Usage of 5,000 directories", func(b *testing.B) {
		s := scanner(b, large, Bounds{})
		for b.Loop() {
			if _, _, err := s.Usage(time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkServed measures a pass of a scanner that watches, when nothing has changed.
func BenchmarkServed(b *testing.B) {
	sandboxtest.Require(b, sandboxtest.Program("git"))
	dir := b.TempDir()
	shell(b, dir, repository)
	s := &server{repo: scanner(b, dir, Bounds{}), events: newEvents()}
	b.Cleanup(s.events.stop)
	s.repo.watch(s.events)
	s.answer(OpBaseline, time.Time{})
	since := settle()
	for b.Loop() {
		if a, err := ReadAnswer(s.answer(OpChanged, since)); err != nil || !a.Armed || a.Heard {
			b.Fatalf("%+v, %v", a, err)
		}
	}
}
