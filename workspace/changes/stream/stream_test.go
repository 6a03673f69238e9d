package stream

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"corral/job"
)

// write returns a stream of records.
func write(t testing.TB, records ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	var err error
	for _, rec := range records {
		switch rec := rec.(type) {
		case *Entry:
			err = w.Entry(rec)
		case Content:
			err = w.Content(rec)
		case []byte:
			err = w.Data(rec)
		case Conflict:
			err = w.Conflict(rec)
		case *Sum:
			err = w.End(rec)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// read reads a stream to its end. It copies data.
func read(b []byte) (records []any, err error) {
	r := NewReader(bytes.NewReader(b))
	for {
		rec, err := r.Next()
		if err != nil {
			return records, err
		}
		if data, ok := rec.([]byte); ok {
			rec = bytes.Clone(data)
		}
		records = append(records, rec)
		if _, ok := rec.(*Sum); ok {
			return records, nil
		}
	}
}

var sample = []any{
	&Entry{
		Path: "d/\xff\n\"", Kind: job.ChangeReplaced, Type: job.TypeLink, OldType: job.TypeDirectory, Mode: 0o777, OldMode: 0o755,
		Size: 1 << 40, OldSize: 2, Below: 3, Link: "to\x00", OldLink: "from", Sensitive: true, State: Skipped,
	},
	Content{New: true},
	[]byte("content"),
	Content{Left: TooLarge},
	&Entry{Path: "a", Kind: job.ChangeAdded, Type: job.TypeFile},
	Conflict{Path: strings.Repeat(strings.Repeat("n", 255)+"/", 200) + "n", Reason: Moving},
	&Sum{Entries: 1, Bytes: 2, More: 3, Conflicts: 4, Applied: 5, Skipped: 6, Incomplete: true, Missed: "a/b", Failed: "why"},
}

func TestRoundTrip(t *testing.T) {
	got, err := read(write(t, sample...))
	if err != nil || !reflect.DeepEqual(got, sample) {
		t.Errorf("%+v, %v", got, err)
	}
	long := bytes.Repeat([]byte("x"), 3*MaxChunk+1)
	got, err = read(write(t, sample[0], Content{}, long, sample[6]))
	if err != nil || len(got) != 7 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	var all []byte
	for _, rec := range got[2:6] {
		all = append(all, rec.([]byte)...)
	}
	if !bytes.Equal(all, long) {
		t.Error("the content differs")
	}
}

// TestCut checks that no proper prefix of a stream is accepted.
func TestCut(t *testing.T) {
	b := write(t, sample...)
	for n := range len(b) {
		if _, err := read(b[:n]); !errors.Is(err, ErrCut) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

func TestMalformed(t *testing.T) {
	entry := func(change func(*Entry)) *Entry {
		e := &Entry{Path: "a", Kind: job.ChangeAdded, Type: job.TypeFile}
		change(e)
		return e
	}
	for _, tt := range []struct {
		name    string
		records []any
	}{
		{"no path", []any{entry(func(e *Entry) { e.Path = "" })}},
		{"absolute", []any{entry(func(e *Entry) { e.Path = "/a" })}},
		{"upwards", []any{entry(func(e *Entry) { e.Path = "a/../b" })}},
		{"here", []any{entry(func(e *Entry) { e.Path = "./a" })}},
		{"slash at the end", []any{entry(func(e *Entry) { e.Path = "a/" })}},
		{"with a NUL", []any{entry(func(e *Entry) { e.Path = "a\x00" })}},
		{"long name", []any{entry(func(e *Entry) { e.Path = strings.Repeat("n", 256) })}},
		{"long path", []any{entry(func(e *Entry) { e.Path = strings.Repeat("n/", MaxPath/2) + "n" })}},
		{"no kind", []any{entry(func(e *Entry) { e.Kind = "" })}},
		{"no type", []any{entry(func(e *Entry) { e.Type = "" })}},
		{"no state", []any{entry(func(e *Entry) { e.State = stateEnd })}},
		{"no permissions", []any{entry(func(e *Entry) { e.Mode = 0o10000 })}},
		{"negative size", []any{entry(func(e *Entry) { e.Size = -1 })}},
		{"content of nothing", []any{Content{}}},
		{"data of nothing", []any{sample[4], []byte("x")}},
		{"data of what is left out", []any{sample[4], Content{Left: OfGit}, []byte("x")}},
		{"no reason to leave out", []any{sample[4], Content{Left: leftEnd}}},
		{"conflict without a reason", []any{Conflict{Path: "a"}}},
		{"conflict with another reason", []any{Conflict{Path: "a", Reason: reasonEnd}}},
		{"conflict nowhere", []any{Conflict{Path: "../a", Reason: Gone}}},
		{"negative sum", []any{&Sum{Entries: -1}}},
	} {
		b := write(t, append(tt.records, sample[6])...)
		if _, err := read(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	whole := write(t, sample[6])
	for name, b := range map[string][]byte{
		"another version":  bytes.Replace(whole, []byte{'v', 1, 0, 0, 0, version}, []byte{'v', 1, 0, 0, 0, version + 1}, 1),
		"no version":       whole[6:],
		"another record":   append(bytes.Clone(whole[:6]), 'q', 0, 0, 0, 0),
		"huge record":      append(bytes.Clone(whole[:6]), 'e', 0xff, 0xff, 0xff, 0xff),
		"trailing garbage": append(append(bytes.Clone(whole[:6]), 'c', 3, 0, 0, 0), 0, 0, 0),
		"empty record":     append(bytes.Clone(whole[:6]), 's', 0, 0, 0, 0),
	} {
		if _, err := read(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWriterFails checks that the first error is kept.
func TestWriterFails(t *testing.T) {
	w := NewWriter(failing{})
	var err error
	for range 100 {
		err = w.Data(bytes.Repeat([]byte("x"), 10_000))
	}
	if !errors.Is(err, io.ErrClosedPipe) || !errors.Is(w.End(&Sum{}), io.ErrClosedPipe) {
		t.Error(err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := Changed; r < reasonEnd; r++ {
		if s := r.String(); seen[s] || s == Reason(0).String() {
			t.Errorf("%d: %s", r, s)
		}
		seen[r.String()] = true
	}
}

// FuzzRead checks that records that were read are equal after they are written and read again.
func FuzzRead(f *testing.F) {
	f.Add(write(f, sample...))
	f.Add(write(f, sample[6]))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := read(b)
		if err != nil {
			return
		}
		again, err := read(write(t, records...))
		if err != nil || !reflect.DeepEqual(again, records) {
			t.Errorf("%+v, %v; was %+v", again, err, records)
		}
	})
}
