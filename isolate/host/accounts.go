package host

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/internal/directory"
	"corral/internal/fault"
)

// accounts is the host's accounts.
var accounts = accountFiles{passwd: "/etc/passwd", group: "/etc/group"}

// accountFiles looks up accounts in files like passwd(5) and group(5). It remembers the last one and reads the files again when one of
// them has changed: each request of root asks for the owner of a repository, and reading the files takes longer than its other checks.
type accountFiles struct {
	passwd, group string // paths

	mu    fault.Mutex
	seen  [2]fileVersion    // guarded by mu: versions of the files before they were read
	whole bool              // guarded by mu: last is what files of these versions say
	last  directory.Account // guarded by mu
	known bool              // guarded by mu: last is listed
}

// settling is the time after a change of a file in which another change may leave its times as they are: file systems keep times in
// steps of up to 2 s.
const settling = 3 * time.Second

// lookup returns a user's account, and whether it is listed. Other name services are not consulted: that would run their code, and
// wait, in the supervisor. The caller must not change the account's groups.
func (f *accountFiles) lookup(uid uint32) (a directory.Account, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := [2]fileVersion{versionOf(f.passwd), versionOf(f.group)}
	if f.whole && f.seen == now && f.last.UID == uid {
		return f.last, f.known
	}
	f.seen = now
	f.last, f.known, f.whole = f.read(uid)
	f.whole = f.whole && now[0].settled() && now[1].settled()
	return f.last, f.known
}

// settled reports whether any later change of the file gives it another version.
func (v fileVersion) settled() bool { return time.Since(time.Unix(v.ctime.Unix())) > settling }

// read is lookup in the files themselves. whole reports whether they could be read.
func (f *accountFiles) read(uid uint32) (a directory.Account, known, whole bool) {
	a.UID = uid
	name := ""
	err := readRecords(f.passwd, 7, func(fields []string) bool {
		if n, err := strconv.ParseUint(fields[2], 10, 32); err != nil || uint32(n) != uid {
			return true
		}
		if gid, err := strconv.ParseUint(fields[3], 10, 32); err == nil {
			name, a.GID = fields[0], uint32(gid)
		}
		return false
	})
	if err != nil || name == "" {
		return a, false, err == nil
	}
	err = readRecords(f.group, 4, func(fields []string) bool {
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && slices.Contains(strings.Split(fields[3], ","), name) && len(a.Groups) < directory.MaxGroups {
			a.Groups = append(a.Groups, uint32(gid))
		}
		return true
	})
	return a, true, err == nil
}
