package meter

import "math"

// The kernel reports no size of the list that overlayfs keeps of a directory in more than one layer: the directory in the lower layer can
// have had any number of names when it was read. Nor does it report what is queued in a socket that is itself queued. So a job that has
// several such descriptors is blamed for what the kernel's memory grew by since it had fewer, if nothing else explains that. Sizes of
// lower directories would not do: a job of the same user can replace them after they were read. Nor would the position of the descriptor:
// lseek(2) sets it back and the list stays.
const (
	// minSuspectFiles is from how many descriptors on a job is blamed. One that walks a tree has few directories open that were changed in
	// the session's layer, and not for long.
	minSuspectFiles = 4

	// MaxUnexplainedBytes is by how much the kernel's memory may grow, unexplained, while a job has such descriptors: more than the growth
	// at which jobs are checked, so that the descriptors were mostly there at several checks.
	MaxUnexplainedBytes = 2 * ManyKernelBytes
)

// endSuspect ends the job with the most suspect files among those to blame for unexplained growth, and reports whether there is none.
// One at a time: the growth is of the host, and ending the one to blame reverses it. n is what the kernel of the host used before all jobs
// were read without finding one that is over MaxKernelBytes; base is the lowest since all were blameless before, or 0: not known.
func endSuspect(all []*kernelHolder, n, base int64) (blameless bool) {
	var suspect *kernelHolder
	most := 0
	for _, h := range all {
		if files, grown := h.unexplained(n, base); grown > MaxUnexplainedBytes && files > most {
			suspect, most = h, files
		}
	}
	return suspect == nil || suspect.check(func(*kernelHolder, int) (int64, error) { return math.MaxInt64, nil })
}

// unexplained returns how many suspect files the job has, and how much the kernel's memory has grown since it had too few to be blamed.
func (h *kernelHolder) unexplained(n, base int64) (files int, grown int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.gone || h.suspectFiles < minSuspectFiles || base == 0 && h.from == 0:
		h.from = n
	case h.from == 0:
		h.from = base
	case base != 0:
		h.from = min(h.from, base)
	}
	return h.suspectFiles, n - h.from
}
