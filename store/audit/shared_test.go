package audit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/store/audit/files"
	"corral/store/audit/reader"
	"corral/store/audit/record"
)

// TestShared: where the group of the directory may read it, that group reads the records of before and from then on. It takes no lock, and
// without that permission nobody reads them.
func TestShared(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // gives files to a group
	dir := filepath.Join(t.TempDir(), "audit")
	const group = 61234
	write := func() {
		t.Helper()
		l, err := Open(dir, Options{Instance: "test", MaxSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := l.Denied(record.Who{Instance: "test"}, job.Claim{Tool: "run"}); err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	modes := func() (shared int) {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
				t.Fatal(err)
			}
			mode, lock := st.Mode&0o777, e.Name() == files.Lock || e.Name() == files.ScanLock || e.Name() == files.Checkpoint
			switch {
			case mode == 0o640 && st.Gid == group && !lock:
				shared++
			case mode != 0o600:
				t.Errorf("%s has mode %o and group %d", e.Name(), mode, st.Gid)
			}
		}
		return shared
	}
	write()
	if n := modes(); n != 0 {
		t.Errorf("%d files are shared", n)
	}
	before, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, -1, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	write()
	all, _ := filepath.Glob(dir + "/*")
	if n := modes(); n != len(all)-3 || len(all) <= len(before) {
		t.Errorf("%d of %d files are shared, %d before", n, len(all), len(before))
	}
	r, err := reader.OpenUnlocked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count := 0
	for l, err := range r.Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		if x, err := l.Record(); err == nil && x.Event == record.Denied {
			count++
		}
	}
	if count != 40 {
		t.Errorf("%d records", count)
	}
	last, whole := r.LastLines(3000)
	some := 0
	for l, err := range last {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Record(); err != nil {
			t.Errorf("not a line: %s", l.Text)
		}
		some++
	}
	if whole || some == 0 || some >= count {
		t.Errorf("%d lines of the last 3,000 bytes, whole %v", some, whole)
	}
	if _, whole := r.LastLines(1 << 30); !whole {
		t.Error("the last GiB is not all of the log")
	}
}
