package isolate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	inside "corral/isolate/jail"
	"corral/isolate/wire"
)

// A userMaker makes user namespaces. Each takes a process, which ends when the namespace is open. It is forked from one that
// does nothing else (the stub, by another name): to fork the supervisor takes the longer the more descriptors it has, and the
// more memory where the child is to be in a new user namespace. Should that one end, the next takes its place.
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
	for {
		if _, err := syscall.Wait4(m.pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
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
		m.end() // whatever it was doing
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	return f, nil
}

// tryMake is make. The caller holds m.mu, and ends the process after an error.
func (m *userMaker) tryMake(owner uint32, uids, gids string) (*os.File, error) {
	if err := m.start(); err != nil {
		return nil, err
	}
	m.conn.SetDeadline(time.Now().Add(slotPatience))
	if err := m.conn.Send(inside.AppendOwner(owner)); err != nil {
		return nil, err
	}
	answer, files, err := m.conn.Receive()
	wire.CloseAll(files)
	if err != nil {
		return nil, err
	}
	pid, err := inside.ReadHolder(answer)
	if err != nil {
		return nil, err
	}
	for name, ids := range map[string]string{"gid_map": gids, "uid_map": uids} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, name), []byte(ids), 0); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return nil, err
	}
	if err := m.conn.Send(inside.AppendOwner(0)); err != nil { // what it made can go
		f.Close()
		return nil, err
	}
	return f, nil
}

// idmap makes a user namespace that serves as a map only: count ids from uid and gid of files appear as those from host id
// to, all others as nobody's.
func (m *userMaker) idmap(uid, gid, to uint32, count int) (*os.File, error) {
	return m.make(0, fmt.Sprintf("%d %d %d\n", uid, to, count), fmt.Sprintf("%d %d %d\n", gid, to, count))
}

// jailUsers makes the user namespace of a jail whose block of ids begins at base: root in it is base, the jobs' users
// follow. Its owner is base too: see own in the stub.
func (m *userMaker) jailUsers(base uint32) (*os.File, error) {
	ids := fmt.Sprintf("0 %d 1\n%d %d %d\n", base, firstJobUID, base+1, jobUIDs)
	return m.make(base, ids, ids)
}
