package isolate

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"corral/internal/directory"
	"corral/isolate/wire"
	"corral/rootfs"
)

const goarch = runtime.GOARCH

func sealFilter(profile string, program []byte) (*os.File, error) {
	return wire.Seal("filter-"+profile, program, 0)
}

// homes lists the home directories of the host's users, from /etc/passwd. Neither a home directory nor what lies in a
// hidden directory of it is a repository: they hold keys, shell start-up files, and the settings and state of programs, those of
// corral's own front-ends among them. A host without that file has none to refuse.
func homes() []rootfs.Place {
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

// records returns the lines of a file such as passwd(5) that have at least so many fields.
func records(path string, fields int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if record := strings.Split(lines.Text(), ":"); len(record) >= fields && !yield(record) {
				return
			}
		}
	}
}

// lookupAccount is the account of a user by the host's own files, and whether they have it. Name services that need more
// than files are not asked: they would be code and waiting in the supervisor.
func lookupAccount(uid uint32) (a directory.Account, known bool) {
	name := ""
	for fields := range records("/etc/passwd", 7) {
		if n, err := strconv.ParseUint(fields[2], 10, 32); err != nil || uint32(n) != uid {
			continue
		}
		gid, err := strconv.ParseUint(fields[3], 10, 32)
		if err != nil {
			return a, false
		}
		name, a = fields[0], directory.Account{UID: uid, GID: uint32(gid)}
		break
	}
	if name == "" {
		return a, false
	}
	for fields := range records("/etc/group", 4) {
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && slices.Contains(strings.Split(fields[3], ","), name) && len(a.Groups) < directory.MaxGroups {
			a.Groups = append(a.Groups, uint32(gid))
		}
	}
	return a, true
}

// stateDirs are directories of the supervisor's own, with all that lies in them.
func stateDirs(dirs ...string) []rootfs.Place {
	var list []rootfs.Place
	for _, dir := range dirs {
		list = append(list, rootfs.Place{Path: dir, Inside: true, Reason: "it is the supervisor's own"})
	}
	return list
}
