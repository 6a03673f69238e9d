package meter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGrowth: jobs of a payer are blamed for what the memory for names grew by while one of them had suspect files, however slowly, also if
// they take turns, and not for what it grew by before, nor for growth that was reversed.
func TestGrowth(t *testing.T) {
	const mb = 1 << 20
	var g growth
	for i, step := range []struct {
		files   map[uint32]int // by payer
		n, base int64
		want    int64 // growth for the first payer
	}{
		{map[uint32]int{1: 1}, 500 * mb, 0, 0}, // at the first look, no base is known
		{map[uint32]int{1: 1}, 540 * mb, 500 * mb, 40 * mb},
		{map[uint32]int{1: 1, 2: 0}, 580 * mb, 540 * mb, 80 * mb},
		{map[uint32]int{1: 0, 2: 1}, 620 * mb, 580 * mb, 0},
		{map[uint32]int{1: 1}, 660 * mb, 620 * mb, 40 * mb},
		{map[uint32]int{1: 1}, 660 * mb, 600 * mb, 60 * mb}, // it had shrunk in between
		{map[uint32]int{2: 1}, 700 * mb, 660 * mb, 0},
		{map[uint32]int{1: 1}, 740 * mb, 700 * mb, 40 * mb}, // with jobs again
		{map[uint32]int{1: 1}, 780 * mb, 0, 80 * mb},        // after another was blamed
	} {
		g.renew(step.files, step.n, step.base)
		from, found := g[1]
		if grown := step.n - from; found && grown != step.want || !found && step.want != 0 {
			t.Errorf("step %d: %d bytes, want %d", i, grown, step.want)
		}
	}
}

// TestEndSuspect: of the jobs to blame only the one with the most suspect files is ended, and none without unexplained growth. One with few
// such files is blamed for more growth only, and what jobs of other payers are known to hold explains growth, but not what a payer's own are.
func TestEndSuspect(t *testing.T) {
	_, pidfd, end := sleeper(t)
	defer end()
	var ended []int
	var all []*kernelHolder
	for _, files := range []int{0, 1, 40, 20} {
		h := &kernelHolder{pidfd: pidfd, payer: uint32(files), suspectFiles: files, target: target{end: func() { ended = append(ended, files) }}}
		all = append(all, h)
	}
	var g growth
	base := int64(1 << 30)
	all[0].known, all[2].known = 25<<20, 100<<20
	const known = 25 << 20
	if !g.endSuspect(all, base+known+MinUnexplainedBytes, base) || len(ended) > 0 {
		t.Fatalf("ended without reason: jobs with %d files", ended)
	}
	var bounded growth
	all[0].known = 2 * MaxExplainedBytes
	if !bounded.endSuspect(all, base+MaxExplainedBytes+MinUnexplainedBytes, base) || len(ended) > 0 {
		t.Fatalf("ended without reason, beside a job that holds much: jobs with %d files", ended)
	}
	if bounded.endSuspect(all, base+MaxExplainedBytes+MinUnexplainedBytes+1, base) || len(ended) != 1 {
		t.Fatalf("%d jobs were ended for more than another job can explain, want one", len(ended))
	}
	ended, all[0].known, all[2].over = nil, known, false
	var unsure growth
	all[2].late = true
	if unsure.endSuspect(all[:3], base+known+MaxUnexplainedBytes, base); len(ended) > 0 {
		t.Fatalf("ended although its lists were not measured: jobs with %d files", ended)
	}
	if unsure.endSuspect(all[:3], base+known+MaxUnexplainedBytes+1, base) || len(ended) != 1 {
		t.Fatalf("%d jobs were ended for the maximum, want one", len(ended))
	}
	ended, all[2].over, all[2].late = nil, false, false
	for i, files := range []int{40, 20} {
		if g.endSuspect(all, base+known+MinUnexplainedBytes+1, base) || len(ended) != i+1 || ended[i] != files {
			t.Fatalf("ended: jobs with %d files, want next the one with %d", ended, files)
		}
		all[i+2].gone = true
	}
	if !g.endSuspect(all, base+known+MaxUnexplainedBytes, base) {
		t.Fatalf("ended without reason: jobs with %d files", ended)
	}
	if g.endSuspect(all, base+known+MaxUnexplainedBytes+1, base) || len(ended) != 3 || ended[2] != 1 {
		t.Errorf("ended: jobs with %d files, want next the one with 1", ended)
	}
}

// TestNamesBytes: objects that no cgroup is charged for count where the kernel has them apart.
func TestNamesBytes(t *testing.T) {
	const table = `slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
kmalloc-cg-128       900    960    128   32    1 : tunables    0    0    0 : slabdata      5      5      0
kmalloc-rcl-96       500    544     96   42    1 : tunables    0    0    0 : slabdata    107    107      0
kmalloc-8k            48     48   8192    4    8 : tunables    0    0    0 : slabdata     12     12      0
kmalloc-512            3      8    512    8    1 : tunables    0    0    0 : slabdata    888    888      0
kmalloc-128           10     32    128   32    1 : tunables    0    0    0 : slabdata    156    156      0
kmalloc-rnd-07-96      2     42     96   42    1 : tunables    0    0    0 : slabdata     84     84      0
dentry                 9     21    192   21    1 : tunables    0    0    0 : slabdata     84     84      0
`
	for name, c := range map[string]struct {
		table string
		want  int64
	}{
		"whole":       {table, 3*512 + 10*128 + 2*96},
		"not apart":   {strings.ReplaceAll(table, chargedCaches, "kmalloc-"), 0},
		"not a table": {"kmalloc-cg-128\nkmalloc-128 many 1 2\n", 0},
	} {
		path := filepath.Join(t.TempDir(), "slabinfo")
		if err := os.WriteFile(path, []byte(c.table), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := namesBytes(path); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := namesBytes("/nonexistent"); got != 0 {
		t.Errorf("no table: %d", got)
	}
}

// TestDirectorySize: a directory that can be in more than one layer is suspect and counts more than another.
func TestDirectorySize(t *testing.T) {
	for name, c := range map[string]struct {
		major, links uint32
		want         openSize
	}{
		"on a device":           {8, 1, openSize{bytes: directoryBytes}},
		"of one layer":          {0, 2, openSize{bytes: directoryBytes + 4096*nameFactor}},
		"of two layers":         {0, 1, openSize{bytes: layeredBytes + 4096*nameFactor, layered: 1}},
		"of one layer, removed": {0, 0, openSize{bytes: layeredBytes + 4096*nameFactor, layered: 1}},
		"with subdirectories":   {0, 9, openSize{bytes: directoryBytes + 4096*nameFactor}},
	} {
		st := unix.Statx_t{Dev_major: c.major, Nlink: c.links, Size: 4096}
		if got := directorySize(&st); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
