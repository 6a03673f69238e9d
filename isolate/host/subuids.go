package host

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// A user with a range of subordinate user ids (subuid(5)) can act as each of them: newuidmap(1) maps the range into a
// user namespace of theirs, in which a process can take any of these ids and keep its groups. So one user can connect
// as 65,536 users. Usage is therefore charged to the holder of the range. Permissions are not affected: they depend
// on the id alone.

// Bounds on what is read of the two files, which belong to root. Excess lines are logged and ignored.
const (
	maxSubUIDBytes  = 4 << 20
	maxSubUIDRanges = 1 << 16
	// maxSubUIDChain bounds the lookups per id: a holder's id may itself be a subordinate one.
	maxSubUIDChain = 8
)

// Subordinates finds the holders of subordinate ids. It reads the files again when one of them has changed.
type Subordinates struct {
	subuid, passwd string // paths
	log            *slog.Logger

	mu     fault.Mutex
	seen   [2]fileVersion // guarded by mu: versions of the files when they were read
	ranges []subRange     // guarded by mu: sorted by first
}

// NewSubordinates returns a source of holders that reads the files at subuid and /etc/passwd.
func NewSubordinates(subuid string, log *slog.Logger) *Subordinates {
	return &Subordinates{subuid: subuid, passwd: "/etc/passwd", log: log}
}

// A fileVersion shows whether a file was changed or replaced.
type fileVersion struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// A subRange is the id range of one line.
type subRange struct {
	first, last uint32
	holder      uint32
	reach       uint32 // the maximum of last in this range and all before it
}

// Holder returns the user who holds the range that contains uid; 0 if there is none or it is root, whose usage is not
// limited.
func (s *Subordinates) Holder(uid uint32) uint32 {
	if uid == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	found := uint32(0)
	for range maxSubUIDChain {
		next := holderOf(s.ranges, uid)
		if next == 0 || next == uid {
			break
		}
		found, uid = next, next
	}
	return found
}

// holderOf returns the holder of the last-beginning range that contains uid. ranges is sorted by first.
func holderOf(ranges []subRange, uid uint32) uint32 {
	n, _ := slices.BinarySearchFunc(ranges, uid, func(r subRange, uid uint32) int {
		if r.first <= uid {
			return -1
		}
		return 1
	})
	for n--; n >= 0 && ranges[n].reach >= uid; n-- {
		if ranges[n].last >= uid {
			return ranges[n].holder
		}
	}
	return 0
}

// refresh reads the files if they have changed. The caller holds s.mu.
func (s *Subordinates) refresh() {
	now := [2]fileVersion{versionOf(s.subuid), versionOf(s.passwd)}
	if now == s.seen {
		return
	}
	s.seen = now
	text, err := readBounded(s.subuid, maxSubUIDBytes)
	var left int
	s.ranges, left = parseSubUIDs(text, s.uidsOf)
	if err != nil || left > 0 {
		s.log.Warn("subordinate user ids are counted as separate users", "file", s.subuid, "lines", left, "error", err)
	}
}

func versionOf(path string) fileVersion {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileVersion{}
	}
	return fileVersion{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// readBounded returns the complete lines in the first limit bytes of a file, and an error if there are more. A
// missing file has no lines.
func readBounded(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		b = b[:strings.LastIndexByte(string(b[:limit]), '\n')+1] // not half a number
		err = fmt.Errorf("the file has more than %d bytes", limit)
	}
	return string(b), err
}

// uidsOf returns the user ids of names, as far as passwd(5) lists them.
func (s *Subordinates) uidsOf(names map[string]bool) map[string]uint32 {
	uids := map[string]uint32{}
	for fields := range records(s.passwd, 7) {
		n, err := strconv.ParseUint(fields[2], 10, 32)
		if _, twice := uids[fields[0]]; err == nil && !twice && names[fields[0]] {
			uids[fields[0]] = uint32(n)
		}
	}
	return uids
}

// parseSubUIDs parses /etc/subuid: lines of a user's name or number, the first id and the count. left is the number
// of invalid or excess lines. A user who is not in passwd(5), but may be known to another name service, is identified
// by the first id of the user's first range.
func parseSubUIDs(text string, uidsOf func(names map[string]bool) map[string]uint32) (ranges []subRange, left int) {
	var owners []string
	names := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		owner, r, ok := parseSubUID(line)
		if !ok || len(ranges) == maxSubUIDRanges {
			left++
			continue
		}
		ranges, owners = append(ranges, r), append(owners, owner)
		names[owner] = true
	}
	uids := uidsOf(names)
	for i, owner := range owners {
		uid, known := uids[owner]
		if n, err := strconv.ParseUint(owner, 10, 32); !known && err == nil {
			uid, known = uint32(n), true
		}
		if !known {
			uid = ranges[i].first
			uids[owner] = uid
		}
		ranges[i].holder = uid
	}
	ranges = slices.DeleteFunc(ranges, func(r subRange) bool { return r.holder == 0 })
	slices.SortStableFunc(ranges, func(a, b subRange) int { return cmp.Compare(a.first, b.first) })
	reach := uint32(0)
	for i := range ranges {
		reach = max(reach, ranges[i].last)
		ranges[i].reach = reach
	}
	return ranges, left
}

// parseSubUID parses one line. Root's own id is excluded from ranges.
func parseSubUID(line string) (owner string, r subRange, ok bool) {
	fields := strings.Split(line, ":")
	if len(fields) != 3 || fields[0] == "" {
		return "", r, false
	}
	first, err := strconv.ParseUint(fields[1], 10, 32)
	if err != nil {
		return "", r, false
	}
	count, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil || count == 0 || first+count == 1 {
		return "", r, false
	}
	return fields[0], subRange{first: uint32(max(first, 1)), last: uint32(min(first+count-1, math.MaxUint32))}, true
}

// PayerOf returns the user to whom the usage of user uid is charged.
func (s *Subordinates) PayerOf(uid uint32) uint32 {
	return Peer{UID: uid, Holder: s.Holder(uid)}.Payer()
}
