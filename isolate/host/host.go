package host

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"corral/rootfs"
)

// Homes lists the home directories of the host's users, from /etc/passwd. Neither a home directory nor anything in a
// hidden directory of it can be a repository: they hold keys, shell start-up files, and settings and state of
// programs, including corral's own front-ends. A host without /etc/passwd has none to refuse.
func Homes() []rootfs.Place {
	var list []rootfs.Place
	for fields := range records("/etc/passwd", 7) {
		if !filepath.IsAbs(fields[5]) || strings.HasPrefix(fields[5], "/nonexistent") {
			continue
		}
		list = append(list, rootfs.Place{
			Path:   filepath.Clean(fields[5]),
			Reason: "it is a home directory: it holds keys and shell start-up files",
		})
	}
	return list
}

// records iterates over the lines of a file like passwd(5) that have at least fields fields.
func records(path string, fields int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) { _ = readRecords(path, fields, yield) }
}

// readRecords is records for callers that need to know whether the file could be read. A missing file has no lines.
func readRecords(path string, fields int, yield func([]string) bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if record := strings.Split(lines.Text(), ":"); len(record) >= fields && !yield(record) {
			return nil
		}
	}
	return lines.Err()
}

// StateDirs returns refusals for directories of the supervisor and everything in them.
func StateDirs(dirs ...string) []rootfs.Place {
	var list []rootfs.Place
	for _, dir := range dirs {
		list = append(list, rootfs.Place{Path: dir, Inside: true, Reason: "it is the supervisor's own"})
	}
	return list
}
