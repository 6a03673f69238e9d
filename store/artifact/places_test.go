package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAt: lines are found by their numbers in the stored stream, and shown with their original numbers.
func TestAt(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, mine(), "one\ntwo\nthree\nfour\nfive\n", "warn\nlast").Handle()
	for _, tt := range []struct {
		name  string
		q     Query
		match string
		want  []string
	}{
		{"one", Query{At: map[string][]int64{Stdout: {3}}, Excerpts: 10, Context: 1}, Matched, []string{"stdout 2-4 two|three|four"}},
		{"unsorted, with a duplicate", Query{At: map[string][]int64{Stdout: {5, 1, 5}}, Excerpts: 10}, Matched, []string{"stdout 1-1 one", "stdout 5-5 five"}},
		{"within another", Query{At: map[string][]int64{Stdout: {2, 3, 4}}, Excerpts: 10, Context: 1}, Matched, []string{"stdout 1-3 one|two|three", "stdout 3-5 three|four|five"}},
		{"both streams", Query{At: map[string][]int64{Stdout: {1}, Stderr: {2}}, Excerpts: 10}, Matched, []string{"stdout 1-1 one", "stderr 2-2 last"}},
		{"the other stream", Query{At: map[string][]int64{Stdout: {1}}, Stream: Stderr, Excerpts: 1}, NoMatch, []string{"stderr 1-1 warn fallback"}},
		{"few", Query{At: map[string][]int64{Stdout: {1, 3}}, Excerpts: 1}, Matched, []string{"stdout 1-1 one"}},
		{"beyond the end", Query{At: map[string][]int64{Stdout: {0, -1, 6, 1 << 60}}, Excerpts: 1}, NoMatch, []string{"stdout 1-1 one fallback"}},
		{"with terms", Query{At: map[string][]int64{Stdout: {5}}, Terms: []string{"THREE"}, Excerpts: 9}, Matched, []string{"stdout 3-3 three", "stdout 5-5 five"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Reader, tt.q.Handle = ada, h
			a, err := s.Query(t.Context(), tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range a.Excerpts {
				got = append(got, short(x))
			}
			if !slices.Equal(got, tt.want) || a.Match != tt.match {
				t.Errorf("%q, %s; want %q", got, a.Match, tt.want)
			}
		})
	}
}

// TestAtBeyondGap: a gap shifts the original numbers of lines, but not their numbers in the stored stream.
func TestAtBeyondGap(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{StreamBytes: 4 << 10})
	var b strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&b, "line %d\n", n+1)
	}
	h := put(t, s, mine(), b.String(), "").Handle()
	var stored bytes.Buffer
	if err := s.Copy(ada, h, &stored, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(stored.String(), "\n"), "\n")
	checked := 0
	for n, text := range lines {
		if strings.Contains(text, "left out") {
			continue
		}
		a, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, At: map[string][]int64{Stdout: {int64(n) + 1}}, Excerpts: 1})
		if err != nil || len(a.Excerpts) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		if x := a.Excerpts[0]; x.Content != text || fmt.Sprintf("line %d", x.LineStart) != text {
			t.Fatalf("stored line %d, %q: %+v", n+1, text, x)
		}
		checked++
	}
	if checked < 300 || checked == 5000 {
		t.Errorf("%d of %d lines: the stream has no gap", checked, len(lines))
	}
}

// TestStream: a stream is returned as it is stored, or with an error.
func TestStream(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, mine(), "out\n", strings.Repeat("error\n", 1000)).Handle()
	for name, want := range map[string]string{Stdout: "out\n", Stderr: strings.Repeat("error\n", 1000)} {
		var b strings.Builder
		if err := s.Stream(t.Context(), ada, h, name, &b); err != nil || b.String() != want {
			t.Errorf("%s: %d bytes, %v", name, b.Len(), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stream(ctx, ada, h, Stderr, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	damage(t, filepath.Join(dir, dirName, h, streamFile(Stderr)))
	if err := s.Stream(t.Context(), ada, h, Stderr, &bytes.Buffer{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
}

// damage changes one of the last bytes of a file.
func damage(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-6] ^= 1 // in the checksum
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
