package client

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
)

// memory returns a file with a content, at its beginning.
func memory(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("cmdline", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "cmdline")
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestShownCommand: a command line is shown as a shell would take it, without secrets, and a long one is cut.
func TestShownCommand(t *testing.T) {
	for _, tt := range []struct{ read, want string }{
		{"", ""},
		{"\x00\x00\x00", ""},
		{"sh\x00-c\x00echo it's\x00", `sh -c 'echo it'\''s'`},
		{"nginx: worker process\x00\x00\x00\x00", "'nginx: worker process'"},
		{"x\x00--token=abcdefghijklmnop\x00", "x '--token=[REDACTED:secret]'"},
		{"x\x00--password\x00abcdefghijklmnop\x00y\x00", "x --password [REDACTED:secret] y"},
		{strings.Repeat("a", maxCommand), strings.Repeat("a", maxCommand) + "…"},
		{strings.Repeat("\x00", maxCommand), ""},
		{strings.Repeat("a\x00", maxArguments+1), strings.Repeat("a ", maxArguments-1) + "a…"},
	} {
		if got := shownCommand([]byte(tt.read)); got != tt.want {
			t.Errorf("%.40q: %q, want %q", tt.read, got, tt.want)
		}
	}
}

// TestCommandStalled: a list does not wait for a command line that cannot be read, and does not read it a second time until it can be. The
// pipe stands for the file of a process whose memory is locked.
func TestCommandStalled(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	stalls, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stalls.Close()
	list := func(files ...*os.File) (commands string) {
		t.Helper()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			head, _, _ := next(t, s)
			for n, f := range files {
				e := wire.Entry{Job: "job-" + string(rune('a'+n))}
				if err := s.Send(wire.Encode(&e, head.Tag), f); err != nil {
					t.Error(err)
				}
				if f != stalls {
					f.Close()
				}
			}
			if err := s.Send(wire.Encode(wire.Empty(wire.OpEnd), head.Tag)); err != nil {
				t.Error(err)
			}
		}()
		got, err := c.ListCommands()
		<-answered
		if err != nil || len(got) != len(files) {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, e := range got {
			commands += e.Command + ";"
		}
		return commands
	}
	for range 3 {
		if got := list(stalls, memory(t, "two\x00")); got != ";two;" {
			t.Errorf("%q", got)
		}
	}
	if n := len(c.stalled); n != 1 {
		t.Errorf("%d reads of one job", n)
	}
	all := make([]*os.File, maxStalled+1)
	for n := range all {
		all[n] = stalls
	}
	if got := list(append(all, memory(t, "last\x00"))...); got != strings.Repeat(";", maxStalled+2) {
		t.Errorf("%q", got)
	}
	end.Close()
	sandboxtest.Eventually(t, sandboxtest.Slow(commandPatience)*100, "all reads return", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.stalled) == 0
	})
	if got := list(memory(t, "again\x00")); got != "again;" {
		t.Errorf("%q", got)
	}
}
