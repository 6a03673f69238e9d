package host

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"corral/internal/directory"
)

// maxSockets is how much of the kernel's list of unix sockets is read, in bytes: 80,000 sockets.
const maxSockets = 8 << 20

// SocketsBelow returns the paths of unix sockets below one of dirs to which a process can connect or send, which a read-only mount does not
// prevent. It finds those of this network namespace by the path to which they were bound.
func SocketsBelow(dirs []string) ([]string, error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := io.ReadAll(io.LimitReader(f, maxSockets))
	return socketsBelow(string(list), dirs), err
}

// socketsBelow reads the kernel's list, see proc_net(5).
func socketsBelow(list string, dirs []string) (paths []string) {
	const listens, datagram = "00010000", "0002"
	for line := range strings.Lines(list) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 7) // number, references, protocol, flags, type, state, inode and path
		if len(f) < 7 || f[3] != listens && f[4] != datagram {
			continue
		}
		_, path, _ := strings.Cut(strings.TrimLeft(f[6], " "), " ")
		if slices.ContainsFunc(dirs, func(dir string) bool { return directory.Within(path, filepath.Clean(dir)) }) {
			paths = append(paths, path)
		}
	}
	return paths
}
