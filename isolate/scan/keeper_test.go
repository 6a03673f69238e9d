package scan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestReadKept: answers with an error status, or a list that does not match its count, are refused.
func TestReadKept(t *testing.T) {
	answer := func(status, count uint32, list string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, status)
		return append(binary.LittleEndian.AppendUint32(b, count), list...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want KeptAnswer
		err  error
	}{
		{"nothing", appendKept(nil, nil), KeptAnswer{}, nil},
		{"two", appendKept([]Kept{{Pinned, "a"}, {ReadOnly.common(), "b"}}, nil), KeptAnswer{2, "pa\x00Rb\x00"}, nil},
		{"too many", appendKept([]Kept{{Pinned, "a"}}, ErrTooMany), KeptAnswer{}, ErrTooMany},
		{"more than a list holds", appendKept(make([]Kept, MaxKept+1), nil), KeptAnswer{}, ErrTooMany},
		{"longer than a list is", appendKept([]Kept{{Pinned, strings.Repeat("x", MaxKeptBytes)}}, nil), KeptAnswer{}, ErrTooMany},
		{"unknown", appendKept(nil, ErrNoBaseline), KeptAnswer{}, errKeepUnknown},
		{"of the future", answer(9, 0, ""), KeptAnswer{}, ErrProtocol},
		{"status 0", answer(0, 0, ""), KeptAnswer{}, ErrProtocol},
		{"no end", answer(keptAll, 1, "ra"), KeptAnswer{}, ErrProtocol},
		{"a number and no list", answer(keptAll, 1, ""), KeptAnswer{}, ErrProtocol},
		{"a list and no number", answer(keptAll, 0, "ra\x00"), KeptAnswer{}, ErrProtocol},
		{"too large a number", answer(keptAll, MaxKept+1, "ra\x00"), KeptAnswer{}, ErrProtocol},
		{"short", answer(keptAll, 0, "")[1:], KeptAnswer{}, ErrProtocol},
		{"long", answer(keptAll, 1, strings.Repeat("\x00", MaxKeptBytes+1)), KeptAnswer{}, ErrProtocol},
		{"empty", nil, KeptAnswer{}, ErrProtocol},
	} {
		if got, err := ReadKept(tt.b); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}

// FuzzReadKept: an accepted answer is within its bounds, and has exactly one encoding.
func FuzzReadKept(f *testing.F) {
	f.Add(appendKept([]Kept{{Pinned, "a"}, {ReadOnly, "a/b"}}, nil))
	f.Add(appendKept(nil, ErrTooMany))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ReadKept(b)
		if err != nil {
			return
		}
		if a.Count > MaxKept || len(a.List) > MaxKeptBytes || !bytes.HasSuffix(b, []byte(a.List)) || len(b) != keptHeader+len(a.List) {
			t.Errorf("%d, %q", a.Count, a.List)
		}
	})
}

// TestServerOfTwo: with a common directory, answers cover both trees: paths in the common directory are absolute.
func TestServerOfTwo(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	top := t.TempDir()
	shell(t, top, "git init -q -b main main; git -C main commit -q --allow-empty -m one; rm -rf main/.git/branches; git -C main worktree add -q ../wt;"+
		"mkdir wt/h; git -C main config core.hooksPath h; echo >main/c; git -C main config include.path ../c")
	common := top + "/main/.git"
	t.Chdir(top + "/wt")
	s, err := newServer(".", common)
	if err != nil {
		t.Fatal(err)
	}
	defer closeScanner(t, s.repo)
	defer closeScanner(t, s.common)
	defer s.events.stop()
	s.answer(OpBaseline, time.Time{})
	for op, want := range map[Op]string{
		OpKeepHooks: "r.git Rconfig rh Rhooks Pworktrees Pworktrees/wt Rworktrees/wt/commondir Rworktrees/wt/gitdir",
		OpKeepAll:   "r.git rh",
	} {
		a, err := ReadKept(s.answer(op, time.Time{}))
		if got := strings.ReplaceAll(strings.TrimSuffix(a.List, "\x00"), "\x00", " "); err != nil || got != want || int(a.Count) != len(strings.Fields(want)) {
			t.Errorf("%d, %q, %v; want %q", a.Count, got, err, want)
		}
	}
	since := settle()
	shell(t, top, "echo >wt/.envrc; echo >main/.git/hooks/pre-commit; echo >main/.envrc; echo >main/c; echo >wt/h/pre-push; git -C wt commit -q --allow-empty -m two")
	a, err := ReadAnswer(s.answer(OpChanged, since))
	got := strings.Split(strings.TrimSuffix(a.Paths, "\x00"), "\x00")
	if err != nil || !slices.Equal(got, []string{".envrc", common + "/hooks/pre-commit", "h/pre-push"}) || a.More != 0 || a.Incomplete {
		t.Errorf("%q, %+v, %v", got, a, err)
	}
	a, err = ReadAnswer(s.answer(OpUsage, since))
	if err != nil || a.Inodes < 5 { // the two files, and the objects of a commit
		t.Errorf("usage %+v, %v", a, err)
	}
	if _, err := newServer(".", top+"/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no common directory: %v", err)
	}
}
