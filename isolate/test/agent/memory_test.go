package agent

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programs are those of corral that have the key, outside of jails: one reads it, and the others pass it on, or put it into requests.
var programs = []string{"corral", "corrald", "corral-egress"}

// searched checks that the key was found in corral's own processes, so that the search finds it, and in no process of the jail.
func (p *place) searched() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	jail := slices.DeleteFunc(slices.Clone(p.has), func(name string) bool { return slices.Contains(programs, name) })
	if p.pid != 0 || len(jail) > 0 || !slices.Contains(p.has, "corral-egress") {
		p.t.Errorf("these processes had the key: %q (they were searched: %v)", p.has, p.pid == 0)
	}
}

// holders returns the names of the processes below pid, and of itself, that have the key in memory, which has the environment, too.
func holders(pid int, key string) (names []string) {
	for _, pid := range append(below(pid), pid) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && holds(pid, key) {
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// holds reports whether a process has the key in memory that it can write; the rest is that of files.
func holds(pid int, key string) bool {
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false
	}
	defer mem.Close()
	pages, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return false
	}
	defer pages.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		for _, r := range present(pages, from, to) {
			text := make([]byte, r[1]-r[0])
			if n, _ := mem.ReadAt(text, int64(r[0])); bytes.Contains(text[:n], []byte(key)) { //nolint:gosec // addresses of programs are positive
				return true
			}
		}
	}
	return false
}

// present returns the parts of a range of addresses that have memory, without zero pages: engines of JavaScript reserve much more than they
// use. See "Pagemap Scan IOCTL" in admin-guide/mm/pagemap of the kernel's documents; kernels before 6.7
// have it not, and the first GiB counts.
func present(pages *os.File, from, to uint64) (parts [][2]uint64) {
	const (
		scan       = 0xc0606610 // PAGEMAP_SCAN
		isPresent  = 1 << 3
		isZeroPage = 1 << 5
	)
	var found [512]struct{ start, end, categories uint64 }
	var pin runtime.Pinner // the kernel is told where it is by a number
	pin.Pin(&found)
	defer pin.Unpin()
	for from < to {
		arg := struct{ size, flags, start, end, walked, vec, room, max, inverted, mask, any, back uint64 }{
			size: 96, start: from, end: to, vec: uint64(uintptr(unsafe.Pointer(&found[0]))), room: uint64(len(found)),
			inverted: isZeroPage, mask: isPresent | isZeroPage, back: isPresent,
		}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, pages.Fd(), scan, uintptr(unsafe.Pointer(&arg)))
		if errno != 0 {
			return [][2]uint64{{from, min(to, from+1<<30)}}
		}
		for _, r := range found[:n] {
			parts = append(parts, [2]uint64{r.start, r.end})
		}
		from = arg.walked
	}
	return parts
}
