package host

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"corral/internal/directory"
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

// lookupAccount returns a user's account from the host's passwd and group files, and whether it is listed. Other name
// services are not consulted: that would run their code, and wait, in the supervisor.
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

// StateDirs returns refusals for directories of the supervisor and everything in them.
func StateDirs(dirs ...string) []rootfs.Place {
	var list []rootfs.Place
	for _, dir := range dirs {
		list = append(list, rootfs.Place{Path: dir, Inside: true, Reason: "it is the supervisor's own"})
	}
	return list
}
