package host

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"corral/internal/fault"
	"corral/isolate/inside"
	"corral/isolate/wire"
)

// A UsernsMaker creates user namespaces. Creating one needs a member process until its ns file is open. That process
// is not forked from the supervisor, which has many descriptors and much memory to copy, but from a helper process:
// the stub under another name. If the helper ends, the next request starts another one.
type UsernsMaker struct {
	stub *os.File // the helper's program; owned by the caller

	mu   fault.Mutex // serializes requests
	conn *wire.Conn  // guarded by mu: nil while no helper runs
	pid  int         // guarded by mu: the helper's
}

// NewUsernsMaker returns a maker whose helper runs the program stub. No process is started before begin or make.
func NewUsernsMaker(stub *os.File) *UsernsMaker { return &UsernsMaker{stub: stub} }

// start starts the helper unless it is running. The caller holds m.mu.
func (m *UsernsMaker) start() error {
	if m.conn != nil && !m.conn.Ended() {
		return nil
	}
	m.end()
	ours, theirs, err := wire.PairFor(StubMessage)
	if err != nil {
		return err
	}
	defer theirs.Close()
	attr := &syscall.ProcAttr{
		Files: []uintptr{NoFile, NoFile, NoFile, theirs.Fd()}, Env: []string{},
		Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are for the supervisor alone
	}
	pid, err := Fork(m.stub, inside.UsersName, attr)
	if err != nil {
		ours.Close()
		return fmt.Errorf("start the helper that creates user namespaces: %w", err)
	}
	m.conn, m.pid = ours, pid
	return nil
}

// end kills the helper, if one was started. The caller holds m.mu.
func (m *UsernsMaker) end() {
	if m.conn == nil {
		return
	}
	m.conn.Close()
	m.conn = nil
	_ = syscall.Kill(m.pid, syscall.SIGKILL) // it may be waiting for a process that does not answer
	Reap(m.pid)
}

// Begin starts the helper ahead of the first jail.
func (m *UsernsMaker) Begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.start()
}

// Close ends the helper process.
func (m *UsernsMaker) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end()
}

// Make creates a user namespace owned by host user owner, with the given contents of /proc/PID/uid_map and gid_map
// (user_namespaces(7)). It exists until the returned descriptor and everything created with it are closed.
func (m *UsernsMaker) Make(owner uint32, uids, gids string) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.makeLocked(owner, uids, gids)
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return f, nil
}

// makeLocked is make without locking. The caller holds m.mu.
func (m *UsernsMaker) makeLocked(owner uint32, uids, gids string) (*os.File, error) {
	if err := m.start(); err != nil {
		return nil, err
	}
	answer, err := m.ask(owner)
	if err != nil {
		m.end() // whatever state it is in
		return nil, err
	}
	pid, err := inside.ReadHolder(answer)
	var f *os.File
	if err == nil {
		f, err = m.open(pid, uids, gids)
	}
	if failed := m.conn.Send(inside.AppendOwner(0)); failed != nil { // releases the member process
		m.end()
		if f != nil {
			f.Close()
		}
		return nil, errors.Join(err, failed)
	}
	return f, err
}

func (m *UsernsMaker) ask(owner uint32) ([]byte, error) {
	m.conn.SetDeadline(time.Now().Add(SlotPatience))
	if err := m.conn.Send(inside.AppendOwner(owner)); err != nil {
		return nil, err
	}
	answer, files, err := m.conn.Receive()
	wire.CloseAll(files)
	return answer, err
}

// open writes the id maps of the user namespace of process pid, and opens it. The helper does not reap that process
// until it is told to. So while the helper runs the pid is not reused, and dir is the right process's directory.
func (m *UsernsMaker) open(pid int, uids, gids string) (*os.File, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if m.conn.Ended() {
		return nil, errors.New("the helper process has ended")
	}
	below := fmt.Sprintf("/proc/self/fd/%d/", dir.Fd())
	for name, ids := range map[string]string{"gid_map": gids, "uid_map": uids} {
		if err := os.WriteFile(below+name, []byte(ids), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(below + "ns/user")
}

// IDMap creates a user namespace for use as an id map only: count file ids from uid and gid appear as those from host
// id to, all others as the overflow id.
func (m *UsernsMaker) IDMap(uid, gid, to uint32, count int) (*os.File, error) {
	return m.Make(0, fmt.Sprintf("%d %d %d\n", uid, to, count), fmt.Sprintf("%d %d %d\n", gid, to, count))
}

// An Owner says to which host ids the user of a job in a directory maps.
type Owner struct {
	UID   uint32 // the directory's owner
	GID   uint32 // a group of the peer's (Peer.GroupFor)
	Group uint32 // the directory's own group, which may differ from gid
}

// Inside returns the numbers that the job's user and group have for the job: those of the directory's owner, so that what programs
// keep about a file's owner is the same inside and outside. Programs that see user 0 do things that a job may not: root's are those of
// a jail's first user.
func (o Owner) Inside() (uid, gid uint32) {
	number := func(id uint32) uint32 {
		if id == 0 {
			return FirstJobUID
		}
		return id
	}
	return number(o.UID), number(o.GID)
}

// RepoMap creates the id map of a directory for jobs of host user to. The directory's owner maps to that user. The
// job's group is the peer's group there; if that differs from the directory's own, files of the directory's group
// appear with group other, which no job is in, and which an overlay can give to copies of these files. All other groups map to
// themselves. Files with an unmapped group could not be written at all, not even by their owner.
func (m *UsernsMaker) RepoMap(r Owner, to, other uint32) (*os.File, error) {
	gids := fmt.Sprintf("%d %d 1\n", r.GID, to)
	used := []uint32{r.GID, to}
	if r.Group != r.GID {
		gids += fmt.Sprintf("%d %d 1\n", r.Group, other)
		used = append(used, r.Group, other)
	}
	return m.Make(0, fmt.Sprintf("%d %d 1\n", r.UID, to), gids+identity(used))
}

// identity returns the lines of an id map that map all ids but those in used to themselves.
func identity(used []uint32) (lines string) {
	slices.Sort(used)
	next := uint32(0)
	for _, id := range append(used, math.MaxUint32) {
		if id > next {
			lines += fmt.Sprintf("%d %d %d\n", next, next, id-next)
		}
		next = id + 1
	}
	return lines
}

// JailMap creates the user namespace of a jail whose block of ids begins at base: root in it is base, the jobs'
// users follow. Its owner is base too: see own in the stub.
func (m *UsernsMaker) JailMap(base uint32) (*os.File, error) {
	ids := fmt.Sprintf("0 %d 1\n%d %d %d\n", base, FirstJobUID, base+1, JobUIDs)
	return m.Make(base, ids, ids)
}
