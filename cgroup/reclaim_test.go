package cgroup

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"corral/cgroup/group"
)

// TestReclaim: Reclaim drops the cached file of a job that was removed, which its jail is charged for until then.
func TestReclaim(t *testing.T) {
	const size = 16 << 20
	s := settings(t)[0]
	j := newJail(t, newInstance(t, s))
	g := newJob(t, j, "job", Limits{})
	runScript(t, g, nil, `dd if=/dev/zero of="$0" bs=1M count=16 conv=fsync status=none`, filepath.Join(t.TempDir(), "file"))
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	charged := func() int64 {
		file := "memory.usage_in_bytes"
		if s.tree.layout == "v2" {
			file = "memory.current"
		}
		b, err := group.At(s.tree.path(s.tree.point("memory"), s.tree.top, j.instance.name, j.path)).Read(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := charged(); n < size/2 {
		t.Fatalf("%d bytes are charged after the job, want the file's %d", n, size)
	}
	if err := j.Reclaim(); err != nil {
		t.Fatal(err)
	}
	if n := charged(); n > size/4 {
		t.Errorf("%d bytes are still charged", n)
	}
	if err := j.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := j.Reclaim(); err != nil {
		t.Errorf("of a jail that was removed: %v", err)
	}
}
