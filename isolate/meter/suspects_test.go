package meter

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnexplainedGrowth: a job is blamed for what the kernel's memory grew by while it had suspect files, however slowly, and not for what
// it grew by before, nor for growth that was reversed.
func TestUnexplainedGrowth(t *testing.T) {
	const mb = 1 << 20
	h := &kernelHolder{}
	for i, step := range []struct {
		files   int
		n, base int64
		want    int64
	}{
		{minSuspectFiles, 500 * mb, 0, 0}, // the first look of the watch, which has no base
		{minSuspectFiles, 540 * mb, 500 * mb, 40 * mb},
		{minSuspectFiles, 580 * mb, 540 * mb, 80 * mb},
		{minSuspectFiles - 1, 620 * mb, 580 * mb, 0},
		{minSuspectFiles, 660 * mb, 620 * mb, 40 * mb},
		{minSuspectFiles, 660 * mb, 600 * mb, 60 * mb}, // it had shrunk in between
	} {
		h.suspectFiles = step.files
		if files, grown := h.unexplained(step.n, step.base); files != step.files || grown != step.want {
			t.Errorf("step %d: %d files, %d bytes; want %d, %d", i, files, grown, step.files, step.want)
		}
	}
	late := &kernelHolder{suspectFiles: minSuspectFiles}
	if _, grown := late.unexplained(660*mb, 620*mb); grown != 40*mb {
		t.Errorf("a job that is new is blamed for %d bytes", grown)
	}
}

// TestEndSuspect: of the jobs to blame only the one with the most suspect files is ended, and none without unexplained growth.
func TestEndSuspect(t *testing.T) {
	_, pidfd, end := sleeper(t)
	defer end()
	var ended []int
	var all []*kernelHolder
	for _, files := range []int{0, minSuspectFiles, 3 * minSuspectFiles, 2 * minSuspectFiles} {
		all = append(all, &kernelHolder{pidfd: pidfd, suspectFiles: files, target: target{end: func() { ended = append(ended, files) }}})
	}
	base := int64(1 << 30)
	if !endSuspect(all, base+MaxUnexplainedBytes, base) || len(ended) > 0 {
		t.Fatalf("ended without reason: jobs with %d files", ended)
	}
	if endSuspect(all, base+MaxUnexplainedBytes+1, base+MaxUnexplainedBytes) || len(ended) != 1 || ended[0] != 3*minSuspectFiles {
		t.Errorf("ended: jobs with %d files, want the one with %d", ended, 3*minSuspectFiles)
	}
	all[2].gone = true
	if endSuspect(all, base+MaxUnexplainedBytes+1, base+MaxUnexplainedBytes) || len(ended) != 2 || ended[1] != 2*minSuspectFiles {
		t.Errorf("ended: jobs with %d files, want next the one with %d", ended, 2*minSuspectFiles)
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
		"of two layers":         {0, 1, openSize{layeredBytes + 4096*nameFactor, 1}},
		"of one layer, removed": {0, 0, openSize{layeredBytes + 4096*nameFactor, 1}},
		"with subdirectories":   {0, 9, openSize{bytes: directoryBytes + 4096*nameFactor}},
	} {
		st := unix.Statx_t{Dev_major: c.major, Nlink: c.links, Size: 4096}
		if got := directorySize(&st); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
