package artifact

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

var _ job.Output = (*Output)(nil)

// Values that look like secrets, assembled here so that no secret scanner reports them in the source.
var (
	akia = "AKIA" + "IOSFODNN7EXAMPLE"
	ghp  = "ghp_" + strings.Repeat("a1B2", 9)
)

func TestModes(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	text := b.String()
	s := openStore(t, t.TempDir(), Options{})
	begin := mine()
	if got := put(t, s, begin, text, text).Captured(); got.Stdout.Summary != "" || len(got.Excerpts) != 0 || got.Excerpts == nil || got.Stdout.Lines != 300 {
		t.Errorf("minimal: %+v", got)
	}
	begin.View = View{Lines: 20}
	got := put(t, s, begin, text, text).Captured()
	if n := strings.Count(got.Stdout.Summary, "\n"); n != 23 || !strings.Contains(got.Stdout.Summary, "line 10\n\n... (280 lines omitted) ...\n\nline 291\n") {
		t.Errorf("summary: %q", got.Stdout.Summary)
	}
	if got.Stderr.Summary != "line 296\nline 297\nline 298\nline 299\nline 300\n" {
		t.Errorf("summary of stderr: %q", got.Stderr.Summary)
	}
	begin.View = View{Terms: []string{"LINE 150"}}
	got = put(t, s, begin, text, "").Captured()
	if len(got.Excerpts) != 1 || got.Excerpts[0].LineStart != 147 || got.Stdout.Summary != "" {
		t.Errorf("intent: %+v", got)
	}
	begin.View = View{Terms: []string{"nothing"}}
	if got = put(t, s, begin, text, "").Captured(); len(got.Excerpts) != 0 {
		t.Errorf("intent without a match: %+v", got.Excerpts)
	}
	begin.View.Fallback = true
	if got = put(t, s, begin, text, "").Captured(); len(got.Excerpts) != 1 || !got.Excerpts[0].Fallback || got.Excerpts[0].LineEnd != 10 {
		t.Errorf("fallback: %+v", got.Excerpts)
	}
}

// TestRedactsOutput: shown and stored output is redacted; totals count what the job wrote.
func TestRedactsOutput(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	begin := mine()
	begin.Secrets = []string{"hush-hush-value", "short"}
	begin.View = View{Lines: 10, Terms: []string{"key"}}
	in := "key " + akia + "\nhush-hush-value short " + ghp
	want := "key [REDACTED:aws-key]\n[REDACTED:secret] short [REDACTED:github-token]"
	out := put(t, s, begin, in, "")
	got := out.Captured()
	if got.Stdout.Summary != want || got.Stdout.Bytes != int64(len(in)) || !strings.Contains(got.Excerpts[0].Content, "[REDACTED:aws-key]") {
		t.Errorf("%+v", got)
	}
	if stdout, _, err := content(s, ada, out.Handle()); stdout != want || err != nil {
		t.Errorf("%q, %v", stdout, err)
	}
	begin.Plain = true
	out = put(t, s, begin, in, "")
	if stdout, _, err := content(s, ada, out.Handle()); stdout != in || out.Captured().Stdout.Summary != in || err != nil {
		t.Errorf("plain: %q, %v", stdout, err)
	}
}

// TestExact: exact output is stored byte for byte, or not at all.
func TestExact(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{StreamBytes: 100 << 10})
	begin := mine()
	begin.Exact, begin.Secrets = true, []string{"hush-hush-value"}
	in := "key " + akia + "\nhush-hush-value \x00\xff"
	out := put(t, s, begin, in, in)
	if stdout, stderr, err := content(s, ada, out.Handle()); stdout != in || stderr != in || err != nil {
		t.Errorf("%q, %q, %v", stdout, stderr, err)
	}
	if got := put(t, s, begin, strings.Repeat("x", 100<<10), "").Captured(); got.Handle == "" || got.Reason != "" {
		t.Errorf("at the maximum: %+v", got)
	}
	want := "the output could not be stored: it has more than 102400 bytes"
	for _, streams := range [][2]int{{100<<10 + 1, 0}, {0, 100<<10 + 1}} {
		got := put(t, s, begin, strings.Repeat("x", streams[0]), strings.Repeat("x", streams[1])).Captured()
		if got.Handle != "" || got.Reason != want {
			t.Errorf("one byte above the maximum: %+v", got)
		}
	}
	if list := entries(t, dir); len(list) != 2 {
		t.Errorf("stored: %q", list)
	}
}

func TestNotPersisted(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	begin := mine()
	begin.Persist = false
	out := put(t, s, begin, strings.Repeat("x", 200<<10), "")
	if got := out.Captured(); got.Handle != "" || got.Reason != "" || out.Handle() != "" || got.Stdout.Bytes != 200<<10 {
		t.Errorf("%+v", got)
	}
	if list := entries(t, dir); len(list) != 0 {
		t.Errorf("stored: %q", list)
	}
}

func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	s.Begin(mine()).Discard()
	out := s.Begin(mine())
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := out.Streams(); err == nil {
		t.Error("Streams succeeded twice")
	}
	if _, err := o.Write(make([]byte, 300<<10)); err != nil {
		t.Fatal(err)
	}
	out.Discard() // while both pipes are open
	out.Discard()
	out.Finish(record())
	if got := out.Captured(); got.Handle != "" || got.Reason != "" {
		t.Errorf("%+v", got)
	}
	if list := entries(t, dir); len(list) != 0 {
		t.Errorf("entries remain: %q", list)
	}
	if _, err := o.Write([]byte("x")); err == nil {
		t.Error("the pipe is still being read")
	}
	o.Close()
	e.Close()

	out = put(t, s, mine(), "kept", "")
	out.Discard()
	if got, _, err := content(s, ada, out.Captured().Handle); got != "kept" || err != nil {
		t.Errorf("discarded after the end: %q, %v", got, err)
	}
}

// TestPipes: the job's ends are blocking, as programs expect, and close-on-exec.
func TestPipes(t *testing.T) {
	out := openStore(t, t.TempDir(), Options{}).Begin(mine())
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Discard()
	for _, f := range []*os.File{o, e} {
		defer f.Close()
		c, err := f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Control(func(fd uintptr) {
			status, _ := unix.FcntlInt(fd, unix.F_GETFL, 0)
			flags, _ := unix.FcntlInt(fd, unix.F_GETFD, 0)
			if status&unix.O_NONBLOCK != 0 || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("status %#x, flags %#x", status, flags)
			}
		})
	}
}

// TestHeldPipe: a process that holds the job's end open does not delay the reply; everything written before is
// stored.
func TestHeldPipe(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	out := s.Begin(mine())
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	defer e.Close()
	if _, err := io.WriteString(o, "before"); err != nil {
		t.Fatal(err)
	}
	out.Finish(record())
	if got, _, err := content(s, ada, out.Handle()); got != "before" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := o.Write([]byte("x")); err == nil {
		t.Error("the pipe is still being read")
	}
}

// TestFloodedPipe: a process that continues to write does not delay the reply either.
func TestFloodedPipe(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	out := s.Begin(mine())
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	flood := make(chan int64)
	go func() {
		var n int64
		for b := make([]byte, 4096); ; n += int64(len(b)) {
			if _, err := o.Write(b); err != nil {
				flood <- n
				return
			}
		}
	}()
	out.Finish(record())
	<-flood
	o.Close()
	if got := out.Captured(); got.Handle == "" {
		t.Error(got.Reason)
	}
}

func TestWritten(t *testing.T) {
	out := openStore(t, t.TempDir(), Options{}).Begin(mine())
	if o, e := out.Written(); o != 0 || e != 0 {
		t.Error(o, e)
	}
	put := func(f *os.File, n int, want func() bool) {
		if _, err := f.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		for !want() {
			runtime.Gosched()
		}
	}
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	put(o, 1000, func() bool { n, _ := out.Written(); return n == 1000 })
	put(e, 70000, func() bool { _, n := out.Written(); return n == 70000 })
	o.Close()
	e.Close()
	out.Finish(record())
	if o, e := out.Written(); o != 1000 || e != 70000 {
		t.Error(o, e)
	}
}

// numbered returns n lines of the given width that contain their numbers.
func numbered(n, width int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%0*d\n", width-1, i+1)
	}
	return b.String()
}

// TestHeadAndTail: of a long stream the head and the tail are stored, in complete lines that keep their numbers.
func TestHeadAndTail(t *testing.T) {
	sandboxtest.OneGoroutine(t)
	const limit = 4 << 20
	s := openStore(t, t.TempDir(), Options{StreamBytes: limit})
	for _, n := range []int{limit, limit + 32, 2 * limit, 10 * limit} {
		text := numbered(n/32, 32)
		r := record()
		out := s.Begin(mine())
		o, e, err := out.Streams()
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
		_, _ = io.WriteString(o, text)
		o.Close()
		out.Finish(r)
		got, _, err := content(s, ada, out.Handle())
		if err != nil || len(got) > limit || len(got) < limit-200<<10 {
			t.Fatalf("%d bytes written, %d stored, %v", n, len(got), err)
		}
		if cut := n > limit; cut != out.Captured().Stdout.Truncated || cut != (got != text) || cut != (r.Result.Limit == job.LimitOutput) {
			t.Errorf("%d bytes written: truncated %v, limit %q", n, out.Captured().Stdout.Truncated, r.Result.Limit)
		}
		if n == limit {
			continue
		}
		head, tail, ok := strings.Cut(got, "... (")
		left, tail, ok2 := strings.Cut(tail, " bytes left out) ...\n")
		if !ok || !ok2 || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) || left != fmt.Sprint(len(text)-len(head)-len(tail)) {
			t.Errorf("%d bytes written: %d at the front, %s left out, %d at the end", n, len(head), left, len(tail))
		}
		if len(tail) < 1<<20-64<<10 {
			t.Errorf("%d at the end", len(tail))
		}
		last := int64(n / 32)
		a, err := s.Query(t.Context(), Query{Reader: ada, Handle: out.Handle(), Terms: []string{fmt.Sprintf("%031d", last-3)}, Excerpts: 10, Context: 1})
		if err != nil || a.Lines != last || a.Bytes != int64(n) || len(a.Excerpts) != 1 || a.Excerpts[0].LineStart != last-4 {
			t.Errorf("%d bytes written: %+v, %v", n, a, err)
		}
		for _, r := range []Range{{Stdout, last - 3, last - 1}, {Stdout, 1, 2}, {Stdout, last, last + 9}, {Stdout, last + 1, last + 2}} {
			var b strings.Builder
			err := s.CopyLines(ada, out.Handle(), r, &b)
			if want := text[min(n, int(r.Start-1)*32):min(n, int(r.End)*32)]; b.String() != want || err != nil {
				t.Errorf("%d bytes written, lines %d to %d: %q, %v", n, r.Start, r.End, b.String(), err)
			}
		}
	}
}

// TestHeadAndTailWithoutNewlines does the same for a stream without line ends at which it could be cut.
func TestHeadAndTailWithoutNewlines(t *testing.T) {
	const limit = 1 << 20
	s := openStore(t, t.TempDir(), Options{StreamBytes: limit})
	out := put(t, s, mine(), strings.Repeat("x", 5*limit), "")
	got, _, err := content(s, ada, out.Handle())
	if err != nil || len(got) > limit || strings.Count(got, "\n") != 2 || !strings.Contains(got, "x\n... (") || !out.Captured().Stdout.Truncated {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := out.Captured().Stdout.Lines; n != 1 {
		t.Errorf("%d lines", n)
	}
	a, err := s.Query(t.Context(), Query{Reader: ada, Handle: out.Handle(), Range: &Range{Stdout, 1, 9}})
	if err != nil || len(a.Excerpts) != 1 || a.Excerpts[0].LineEnd != 3 {
		t.Errorf("%+v, %v", a, err)
	}
	for n, want := range map[int64]string{1: "xxx", 2: "... (", 3: "xxx", 4: ""} {
		var b strings.Builder
		if err := s.CopyLines(ada, out.Handle(), Range{Stdout, n, n}, &b); err != nil || !strings.HasPrefix(b.String(), want) || (b.Len() == 0) != (want == "") {
			t.Errorf("line %d: %.10q, %v", n, b.String(), err)
		}
	}
}

// TestMemory: memory use does not grow with the output.
func TestMemory(t *testing.T) {
	line := bytes.Repeat([]byte("2026-05-01 INFO the quick brown fox jumps over the lazy dog 0123456789\n"), 900)
	solid := bytes.Repeat([]byte{'x'}, 64<<10)
	for name, in := range map[string][]byte{"lines": line, "no newline": solid} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir(), Options{})
			begin := mine()
			begin.View = View{Lines: 1000, Terms: []string{"needle"}, Fallback: true}
			runtime.GC()
			var before, now, peak runtime.MemStats
			runtime.ReadMemStats(&before)
			out := s.Begin(begin)
			o, e, err := out.Streams()
			if err != nil {
				t.Fatal(err)
			}
			for i := range sandboxtest.Scale(60<<20) / len(in) {
				for _, f := range []*os.File{o, e} {
					if _, err := f.Write(in); err != nil {
						t.Fatal(err)
					}
				}
				if i%64 == 0 {
					runtime.ReadMemStats(&now)
					if now.HeapInuse > peak.HeapInuse {
						peak = now
					}
				}
			}
			o.Close()
			e.Close()
			out.Finish(record())
			if grown := int64(peak.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
				t.Errorf("%d KiB more were in use", grown>>10)
			} else {
				t.Logf("%d KiB more were in use", grown>>10)
			}
			if out.Captured().Handle == "" {
				t.Error(out.Captured().Reason)
			}
		})
	}
}
