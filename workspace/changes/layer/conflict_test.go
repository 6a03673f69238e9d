package layer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// TestConflicts checks changes by the repository's owner while the session is open.
func TestConflicts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		jobs  func(m at)
		owner func(r at)
		want  []string // conflicts; nil if the changes are applied
	}{
		{"another file", func(m at) { m.write("b", "2") }, func(r at) { r.write("d/x", "owner") }, nil},
		{"another file in a directory", func(m at) { m.write("d/x", "X") }, func(r at) { r.write("d/y", "owner"); r.write("d/n", "owner") }, nil},
		{"the same file", func(m at) { m.write("b", "2") }, func(r at) { r.write("b", "owner") }, []string{"b: changed"}},
		{"the same file, the same way", func(m at) { m.write("b", "2") }, func(r at) { r.write("b", "2") }, nil},
		{"the same file, with its time set back", func(m at) { m.write("b", "2") }, func(r at) {
			r.write("b", "own\n")
			check(r.t, os.Chtimes(r.path("b"), time.Unix(1, 0), time.Unix(1, 0)))
		}, []string{"b: changed"}},
		{"its permissions", func(m at) { m.write("b", "2") }, func(r at) { r.chmod("b", 0o600) }, []string{"b: changed"}},
		{"both its permissions", func(m at) { m.chmod("b", 0o755) }, func(r at) { r.chmod("b", 0o600) }, []string{"b: changed"}},
		{"both a directory's permissions", func(m at) { m.chmod("d", 0o755&^0o5) }, func(r at) { r.chmod("d", 0o700) }, []string{"d: changed"}},
		{"a file moved there", func(m at) { m.write("b", "2") }, func(r at) { r.move("a", "b") }, []string{"b: changed"}},
		{"a file moved there, which is old", func(m at) { m.write("b", "2") }, func(r at) { r.remove("b"); r.move("d/x", "b") }, []string{"b: changed"}},
		{"both add", func(m at) { m.write("n", "job") }, func(r at) { r.write("n", "owner") }, []string{"n: changed"}},
		{"both add the same", func(m at) { m.write("n", "same") }, func(r at) { r.write("n", "same") }, nil},
		{"both add a directory", func(m at) { m.write("n/job", "") }, func(r at) { r.write("n/owner", "") }, nil},
		{"a file where the job has a directory", func(m at) { m.write("n/job", "") }, func(r at) { r.write("n", "owner") }, []string{"n: changed"}},
		{"deleted and changed", func(m at) { m.remove("b") }, func(r at) { r.write("b", "owner") }, []string{"b: changed"}},
		{"deleted by both", func(m at) { m.remove("b") }, func(r at) { r.remove("b") }, nil},
		{"changed and deleted", func(m at) { m.write("b", "2") }, func(r at) { r.remove("b") }, []string{"b: gone"}},
		{"changed and moved away", func(m at) { m.write("b", "2") }, func(r at) { r.move("b", "d/b") }, []string{"b: gone"}},
		{"moved, and another one deleted", func(m at) { m.move("b", "bb") }, func(r at) { r.remove("run") }, nil},
		{"moved away from what is deleted, and another one made", func(m at) { m.move("d/x", "x"); m.remove("d") }, func(r at) { r.write("n", "owner") }, nil},
		{"moved and deleted", func(m at) { m.move("b", "bb") }, func(r at) { r.remove("b") }, []string{"bb: gone"}},
		{"in a deleted directory", func(m at) { m.write("d/sub/z", "Z") }, func(r at) { r.remove("d") }, []string{"d: gone"}},
		{"in a directory that is a link now", func(m at) { m.write("d/x", "X") }, func(r at) { r.move("d", "dd"); r.link("dd", "d") }, []string{"d: gone"}},
		{"new in a deleted directory", func(m at) { m.remove("d") }, func(r at) { r.write("d/sub/n", "owner") }, []string{"d/sub/n: changed"}},
		{"a new directory in a deleted directory", func(m at) { m.remove("d") }, func(r at) { r.mkdir("d/sub/n") }, []string{"d/sub/n: changed"}},
		{"changed in a deleted directory", func(m at) { m.remove("d"); m.write("d", "d") }, func(r at) { r.write("d/sub/z", "owner") }, []string{"d/sub/z: changed"}},
		{"new in a re-created directory", func(m at) { m.remove("d"); m.write("d/n", "n") }, func(r at) { r.write("d/o", "owner") }, []string{"d/o: changed"}},
		{"several", func(m at) { m.write("a", "1"); m.write("b", "2"); m.write("d/x", "X"); m.write("n", "") }, func(r at) {
			r.write("d/x", "owner")
			r.write("b", "owner")
		}, []string{"b: changed", "d/x: changed"}},
		{"a link", func(m at) { m.remove("l"); m.link("b", "l") }, func(r at) { r.remove("l"); r.link("c", "l") }, []string{"l: changed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, project(t))
			tt.jobs(at{t, w.merged})
			tt.owner(at{t, w.repo})
			before := tree(t, w.repo)
			dry := w.run("apply", "-dry-run")
			same(t, tree(t, w.repo), before)
			all := w.run("apply")
			for _, got := range []*output{dry, all} {
				if words := conflicts(got); !slices.Equal(words, tt.want) || got.sum.Conflicts != int64(len(tt.want)) {
					t.Errorf("%q, want %q", words, tt.want)
				}
			}
			if tt.want != nil {
				same(t, tree(t, w.repo), before)
				return
			}
			if all.sum.Failed != "" {
				t.Error(all.sum.Failed)
			}
			if left := w.run("list"); len(left.entries) > 0 {
				t.Errorf("left over: %q", left.lines())
			}
			if again := w.run("apply"); len(again.entries)+len(again.conflicts) > 0 {
				t.Errorf("second apply: %q %q", again.lines(), conflicts(again))
			}
		})
	}
}

func conflicts(all *output) []string {
	var words []string
	for _, c := range all.conflicts {
		word := map[stream.Reason]string{
			stream.Changed: "changed", stream.Gone: "gone", stream.NoAccess: "no access", stream.Unwritable: "unwritable",
			stream.Unknown: "unknown", stream.Moving: "moving",
		}[c.Reason]
		words = append(words, c.Path+": "+word)
	}
	slices.Sort(words)
	return words
}

func temporaries(t *testing.T, repo string) (n int) {
	for path := range tree(t, repo) {
		if isTemp(filepath.Base(path)) {
			n++
		}
	}
	return n
}

// TestLeftovers checks that temporary files of a killed apply are not changes, and that the next apply removes them.
func TestLeftovers(t *testing.T) {
	leftover := tempPrefix + "0123456789abcdef.7"
	w := newWorld(t, project(t))
	r, m := at{t, w.repo}, at{t, w.merged}
	m.write("d/x", "X")
	m.remove("e/.git/hooks")
	m.write("e/.git/hooks/n", "")
	m.remove("empty")
	for _, dir := range []string{"", "d", "e/.git/hooks", "empty"} {
		r.write(filepath.Join(dir, leftover), "half")
		r.write(filepath.Join(dir, tempPrefix+"mine"), "no leftover")
	}
	all := w.run("list")
	for _, line := range all.lines() {
		if strings.Contains(line, leftover) {
			t.Error(line)
		}
	}
	if got, want := conflicts(w.run("apply")), []string{"e/.git/hooks/.corral-apply-mine: changed", "empty/.corral-apply-mine: changed"}; !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	if temporaries(t, w.repo) != 4 {
		t.Error("temporary files were removed before everything was checked")
	}
	r.remove("empty/" + tempPrefix + "mine")
	r.remove("e/.git/hooks/" + tempPrefix + "mine")
	if all := w.run("apply"); len(all.conflicts) > 0 || all.sum.Failed != "" {
		t.Fatalf("%q %+v", conflicts(all), all.sum)
	}
	if n := temporaries(t, w.repo); n != 0 {
		t.Errorf("%d temporary files left", n)
	}
}

// TestWholeSeconds checks that times of whole seconds are rounded up only on file systems that store no others.
func TestWholeSeconds(t *testing.T) {
	st := unix.Stat_t{Ino: 1, Ctim: unix.Timespec{Sec: 100}}
	for _, tt := range []struct {
		seconds bool
		since   time.Time
		late    bool
	}{
		{false, time.Unix(100, 1), false},
		{false, time.Unix(100, 0), true},
		{true, time.Unix(100, 1), true},
		{true, time.Unix(102, 0), true},
		{true, time.Unix(102, 1), false},
	} {
		v := checker{base: &base{since: tt.since.UnixNano()}, seconds: tt.seconds}
		if v.late(&st) != tt.late {
			t.Errorf("late: %+v failed", tt)
		}
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var fs unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &fs); err != nil {
		t.Fatal(err)
	}
	if got := wholeSeconds(int(dir.Fd())); got != (fs.Mask&unix.STATX_BTIME == 0) {
		t.Errorf("whole seconds: %v", got)
	}
}
