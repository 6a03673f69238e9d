package isolate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"corral/isolate/inside"
	"corral/isolate/wire"
)

// A userMaker makes user namespaces. Each takes a process, which ends when the namespace is open. That process is not forked
// from the supervisor, which has many descriptors and much memory to copy, but from one that stands by: the stub, by another
// name. Should that end, the next takes its place.
type userMaker struct {
	stub *os.File // its program

	mu   sync.Mutex // one namespace at a time
	conn *wire.Conn // guarded by mu: nil before it is started
	pid  int        // guarded by mu
}

// start starts the process, unless it runs. The caller holds m.mu.
func (m *userMaker) start() error {
	if m.conn != nil && !m.conn.Ended() {
		return nil
	}
	m.end()
	ours, theirs, err := wire.PairFor(stubMessage)
	if err != nil {
		return err
	}
	defer theirs.Close()
	const none = ^uintptr(0)
	attr := &syscall.ProcAttr{
		Files: []uintptr{none, none, none, theirs.Fd()}, Env: []string{},
		Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are for this process alone
	}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", m.stub.Fd()), []string{inside.UsersName}, attr)
	if err != nil {
		ours.Close()
		return fmt.Errorf("a process to make user namespaces: %w", err)
	}
	m.conn, m.pid = ours, pid
	return nil
}

// end ends the process, if it was started. The caller holds m.mu.
func (m *userMaker) end() {
	if m.conn == nil {
		return
	}
	m.conn.Close()
	m.conn = nil
	_ = syscall.Kill(m.pid, syscall.SIGKILL) // it may wait for one that answers nothing
	reap(m.pid)
}

// begin starts the process, so that the first jail does not wait for it.
func (m *userMaker) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.start()
}

func (m *userMaker) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end()
}

// make makes a user namespace that the host's user owner owns, with what goes into /proc/PID/uid_map and gid_map
// (user_namespaces(7)). It lives as long as the returned descriptor, and what is made with that.
func (m *userMaker) make(owner uint32, uids, gids string) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.tryMake(owner, uids, gids)
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return f, nil
}

// tryMake is make. The caller holds m.mu.
func (m *userMaker) tryMake(owner uint32, uids, gids string) (*os.File, error) {
	if err := m.start(); err != nil {
		return nil, err
	}
	answer, err := m.ask(owner)
	if err != nil {
		m.end() // whatever it is doing
		return nil, err
	}
	pid, err := inside.ReadHolder(answer)
	var f *os.File
	if err == nil {
		f, err = m.open(pid, uids, gids)
	}
	if failed := m.conn.Send(inside.AppendOwner(0)); failed != nil { // else what it made can go
		m.end()
		if f != nil {
			f.Close()
		}
		return nil, errors.Join(err, failed)
	}
	return f, err
}

func (m *userMaker) ask(owner uint32) ([]byte, error) {
	m.conn.SetDeadline(time.Now().Add(slotPatience))
	if err := m.conn.Send(inside.AppendOwner(owner)); err != nil {
		return nil, err
	}
	answer, files, err := m.conn.Receive()
	wire.CloseAll(files)
	return answer, err
}

// open gives the user namespace of process pid its ids, and opens it. Until it is told, the process that was asked does not
// reap that one. So as long as it runs, the number is nobody else's, and the directory is of the right process.
func (m *userMaker) open(pid int, uids, gids string) (*os.File, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if m.conn.Ended() {
		return nil, errors.New("the process that makes them ended")
	}
	below := fmt.Sprintf("/proc/self/fd/%d/", dir.Fd())
	for name, ids := range map[string]string{"gid_map": gids, "uid_map": uids} {
		if err := os.WriteFile(below+name, []byte(ids), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(below + "ns/user")
}

// idmap makes a user namespace that serves as a map only: count ids from uid and gid of files appear as those from host id
// to, all others as nobody's.
func (m *userMaker) idmap(uid, gid, to uint32, count int) (*os.File, error) {
	return m.make(0, fmt.Sprintf("%d %d %d\n", uid, to, count), fmt.Sprintf("%d %d %d\n", gid, to, count))
}

// repoMap makes the map of a repository for jobs of host user to. Its owner is that user. The job's group is the one that the
// peer has there; if that is another one than the directory's, files of the directory's group are those of group other,
// which no job is in: with a group that the map does not know they could not be written at all, not even by their owner.
func (m *userMaker) repoMap(r *repo, to, other uint32) (*os.File, error) {
	gids := fmt.Sprintf("%d %d 1\n", r.gid, to)
	if r.group != r.gid {
		gids += fmt.Sprintf("%d %d 1\n", r.group, other)
	}
	return m.make(0, fmt.Sprintf("%d %d 1\n", r.uid, to), gids)
}

// jailUsers makes the user namespace of a jail whose block of ids begins at base: root in it is base, the jobs' users
// follow. Its owner is base too: see own in the stub.
func (m *userMaker) jailUsers(base uint32) (*os.File, error) {
	ids := fmt.Sprintf("0 %d 1\n%d %d %d\n", base, firstJobUID, base+1, jobUIDs)
	return m.make(base, ids, ids)
}
