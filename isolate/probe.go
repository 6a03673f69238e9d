package isolate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// A client may name or pass a directory on a file system that it serves itself (fuse(4), also below an overlay in a user
// namespace of its own). Whoever looks at that waits for an answer that may never come, and once the request has been read
// not even SIGKILL ends the wait. A thread of the supervisor would be lost, and the process could never exit.

const (
	// maxUserProbes bounds the looks that are under way for one user, those that were abandoned and have not ended included.
	maxUserProbes = 8
	// maxProbes bounds them for all users. Each may have a process, a few hundred KiB, and none has a thread of the supervisor's.
	maxProbes = 256
	// maxIdleProbes is how many helper processes wait for the next look.
	maxIdleProbes = 4
	// probePatience is how long a file system may take to answer. A disk that has to start takes ten seconds.
	probePatience = 15 * time.Second
)

// A prober looks at files that clients control. What the kernel can answer from memory is asked at once. All else is asked by
// a helper process, which may do nothing else and is abandoned when it does not answer in time: it is killed, and counts
// against its user until it has ended.
type prober struct {
	stub     *os.File // the helpers' program
	user     uint32   // the helpers' user and group
	patience time.Duration
	ctx      context.Context // ends with the supervisor: no look is waited for then
	log      *slog.Logger
	payer    func(uid uint32) uint32 // returns the user on whom a user counts
	closer   fileCloser

	mu      sync.Mutex
	idle    []*probeHelper
	users   map[uint32]*probeCount // guarded by mu: users that have looks under way
	all     probeCount             // guarded by mu
	changed chan struct{}          // guarded by mu: closed when a look has ended; nil: nobody waits
}

// A probeCount counts looks.
type probeCount struct {
	busy  int // under way
	stuck int // of them, abandoned
}

type probeHelper struct {
	conn *wire.Conn
	pid  int

	closing bool      // it closes what it passed on, and will say when it has
	user    uint32    // whose look that was
	since   time.Time // when it began
}

// An identity tells a directory from all others, and says whose it is.
type identity struct {
	inode
	mode, uid, gid uint32
}

// identify looks at a descriptor that a client passed. Errors: *job.Refusal if user has too many looks under way or the file
// system does not answer, else the kernel's.
func (p *prober) identify(user uint32, f *os.File) (identity, error) {
	if err := p.acquire(user); err != nil {
		return identity{}, err
	}
	if id, err := identifyCached(int(f.Fd())); err == nil {
		p.release(user)
		return id, nil
	}
	found, files, err := p.ask(user, inside.Probe{Kind: inside.ProbeLook}, f)
	wire.CloseAll(files)
	return identityOf(found), err
}

// openDir opens the directory at path, which must be absolute and have no link in it, as a place in the tree (O_PATH).
// Errors: as with identify.
func (p *prober) openDir(user uint32, path string) (*os.File, identity, error) {
	if err := p.acquire(user); err != nil {
		return nil, identity{}, err
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	f, id, err := openDirCached(path, how)
	if err == nil {
		p.release(user)
		return f, id, nil
	}
	p.discard(user, f)
	question := inside.Probe{Kind: inside.ProbeOpen, Flags: how.Flags, Resolve: how.Resolve, Path: path}
	found, files, err := p.ask(user, question)
	if err == nil && len(files) != 1 {
		err = inside.ErrReport
	}
	if err != nil {
		wire.CloseAll(files)
		return nil, identity{}, err
	}
	return files[0], identityOf(found), nil
}

// fileSystem looks at the file system of a descriptor. It always takes a helper process: the kernel asks most file systems
// how much room they have. Errors: as with identify.
func (p *prober) fileSystem(user uint32, f *os.File) (inside.Probed, error) {
	if err := p.acquire(user); err != nil {
		return inside.Probed{}, err
	}
	found, files, err := p.ask(user, inside.Probe{Kind: inside.ProbeLook}, f)
	wire.CloseAll(files)
	return found, err
}

func identityOf(p inside.Probed) identity {
	return identity{inode{p.Dev, p.Ino}, p.Mode, p.UID, p.GID}
}

// identifyCached takes what the kernel knows: with AT_STATX_DONT_SYNC neither FUSE nor a network file system is asked
// (statx(2)), nor by an overlay above one.
func identifyCached(fd int) (identity, error) {
	const needed = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_UID | unix.STATX_GID
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, needed, &st); err != nil {
		return identity{}, err
	}
	if st.Mask&needed != needed {
		return identity{}, unix.ENODATA
	}
	return identity{inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, uint32(st.Mode), st.Uid, st.Gid}, nil
}

// openDirCached walks through what the kernel has of the tree in memory: it fails if a file system is to be asked for anything
// (openat2(2), RESOLVE_CACHED). The directory may be open even then.
func openDirCached(path string, how unix.OpenHow) (*os.File, identity, error) {
	const cached = 0x20 // RESOLVE_CACHED, which x/sys lacks
	how.Resolve |= cached
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, identity{}, err
	}
	id, err := identifyCached(fd)
	return os.NewFile(uintptr(fd), path), id, err
}

// acquire counts a look of a user's. It waits for another one to end if the user has as many as may be, unless none of these
// will: then it refuses at once.
func (p *prober) acquire(user uint32) error {
	var over <-chan time.Time
	for {
		p.mu.Lock()
		mine := p.of(user)
		if mine.busy < maxUserProbes && (p.all.busy < maxProbes || mine.stuck == 0 && p.all.busy-p.all.stuck < maxProbes) {
			mine.busy++
			p.all.busy++
			p.mu.Unlock()
			return nil
		}
		stuck, hopeless := mine.stuck, mine.stuck >= maxUserProbes || mine.stuck > 0 && p.all.stuck >= maxProbes
		p.forgetUser(user)
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if hopeless {
			return tooManyProbes(stuck)
		}
		if over == nil {
			timer := time.NewTimer(p.patience)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-changed:
		case <-over:
			return tooManyProbes(stuck)
		case <-p.ctx.Done():
			return errEnding
		}
	}
}

// errForeign is a descriptor that is none of O_PATH, a pipe and a memfd, which are all that clients send.
var errForeign = &job.Refusal{
	Step: "request", Message: "a descriptor is no directory opened with O_PATH, no pipe and no memfd",
	Hint: "nothing else can be passed: the supervisor could not close it without asking its file system",
}

// receive receives the next message from a client's socket, with its descriptors. The helper looks at what kind these are, by
// calls that ask no file system, and passes on those that can be held and closed without one. Errors: as with identify,
// errForeign, io.EOF, wire.ErrMalformed.
func (p *prober) receive(user uint32, socket int) ([]byte, []*os.File, error) {
	if err := p.acquire(user); err != nil {
		return nil, nil, err
	}
	answer, files, err := p.query(user, inside.Probe{Kind: inside.ProbeReceive}, func(err error) bool {
		return err != nil // it ends by itself: to close what it has received may take as long as the client wants
	}, socket)
	var message []byte
	if err == nil {
		message, err = inside.Received(answer)
	}
	switch {
	case errors.Is(err, unix.EBADFD):
		err = errForeign
	case errors.Is(err, unix.EPIPE):
		err = io.EOF
	case errors.Is(err, unix.EMSGSIZE):
		err = wire.ErrMalformed
	}
	return message, files, err
}

// release ends a look.
func (p *prober) release(user uint32) { p.count(user, -1, 0) }

func (p *prober) count(user uint32, busy, stuck int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*probeCount{&p.all, p.users[user]} {
		c.busy += busy
		c.stuck += stuck
	}
	p.forgetUser(user)
	if p.changed != nil && busy < 0 {
		close(p.changed)
		p.changed = nil
	}
}

// forgetUser forgets a user without looks. The caller holds p.mu.
func (p *prober) forgetUser(user uint32) {
	if p.users[user].busy == 0 {
		delete(p.users, user)
	}
}

// A stalledError is a refusal because the file system of a client's directory did not answer in time. A client may be told
// of it, as opposed to other errors of a look, because it reveals nothing that the client cannot see.
type stalledError struct{ *job.Refusal }

func (e stalledError) Unwrap() error { return e.Refusal }

func tooManyProbes(stuck int) error {
	return stalledError{&job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the file systems of %d directories that you asked for have not answered: no more are looked at", stuck),
		Hint:    "end or unmount the FUSE or network file system that hangs, then try again",
	}}
}

// ask has a helper process look at something. It ends the look that acquire counted.
func (p *prober) ask(user uint32, question inside.Probe, files ...*os.File) (inside.Probed, []*os.File, error) {
	fds := make([]int, 0, 1)
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	answer, got, err := p.query(user, question, func(error) bool { return false }, fds...)
	if err != nil {
		return inside.Probed{}, nil, err
	}
	found, err := inside.ReadProbed(answer)
	return found, got, err
}

// query has a helper process answer a question. It ends the look that acquire counted. ends says of an error in the answer
// whether the helper ends with it.
func (p *prober) query(user uint32, question inside.Probe, ends func(error) bool, fds ...int) ([]byte, []*os.File, error) {
	h, err := p.helper()
	if err != nil {
		p.release(user)
		return nil, nil, err
	}
	h.conn.SetDeadline(time.Now().Add(p.patience))
	stop := context.AfterFunc(p.ctx, func() { h.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer, got, err := h.exchange(question, fds...)
	if err != nil {
		p.abandon(user, h)
		switch {
		case p.ctx.Err() != nil:
			err = errEnding
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = stalledError{&job.Refusal{
				Step: "repo", Message: fmt.Sprintf("the directory's file system has not answered for %v", p.patience),
				Hint: "it is served by another program (FUSE) or over the network, and hangs",
			}}
		}
		return nil, nil, err
	}
	answer = slices.Clone(answer) // the next look of this helper's overwrites it
	if _, err := inside.Received(answer); ends(err) {
		p.abandon(user, h)
		return answer, got, nil
	}
	if h.closing = inside.Closing(answer); h.closing {
		h.user, h.since = user, time.Now()
	}
	p.keep(h)
	p.release(user)
	return answer, got, nil
}

// exchange sends a question and waits for the answer.
func (h *probeHelper) exchange(question inside.Probe, fds ...int) ([]byte, []*os.File, error) {
	if err := h.conn.SendDescriptors(question.Append(), fds...); err != nil {
		return nil, nil, err
	}
	return h.conn.Receive()
}

// helper returns one that waits, or starts one. One that still closes what it passed on is passed over, and abandoned when that
// takes too long: it would have the next user wait for another one's file system.
func (p *prober) helper() (*probeHelper, error) {
	p.mu.Lock()
	var found *probeHelper
	var late []*probeHelper
	p.idle = slices.DeleteFunc(p.idle, func(h *probeHelper) bool {
		switch {
		case found != nil:
			return false
		case h.ready():
			found = h
			return true
		case time.Since(h.since) > p.patience:
			late = append(late, h)
			return true
		}
		return false
	})
	p.mu.Unlock()
	for _, h := range late {
		p.abandonClosing(h)
	}
	if found != nil {
		return found, nil
	}
	return p.start()
}

// ready says, without waiting, whether the helper can be asked. One that has ended is not.
func (h *probeHelper) ready() bool {
	if h.closing {
		message, err := h.conn.Poll()
		h.closing = err != nil || message == nil
		return !h.closing
	}
	return !h.conn.Ended()
}

// keep keeps a helper for the next look, or ends it.
func (p *prober) keep(h *probeHelper) {
	p.mu.Lock()
	kept := len(p.idle) < maxIdleProbes && p.ctx.Err() == nil
	if kept {
		p.idle = append(p.idle, h)
	}
	p.mu.Unlock()
	switch {
	case kept:
	case h.closing:
		p.abandonClosing(h)
	default:
		h.end()
	}
}

// abandonClosing abandons a helper whose look has ended.
func (p *prober) abandonClosing(h *probeHelper) {
	p.charge(h.user)
	p.kill(h, func() { p.count(h.user, -1, -1) })
}

// charge counts an abandoned look of a user's, whatever their number.
func (p *prober) charge(user uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.of(user)
	for _, c := range []*probeCount{&p.all, mine} {
		c.busy++
		c.stuck++
	}
}

// of returns the count of a user. The caller holds p.mu.
func (p *prober) of(user uint32) *probeCount {
	if p.users[user] == nil {
		if p.users == nil {
			p.users = map[uint32]*probeCount{}
		}
		p.users[user] = &probeCount{}
	}
	return p.users[user]
}

// start starts a helper, confined when it returns.
func (p *prober) start() (*probeHelper, error) {
	ours, theirs, err := wire.PairFor(inside.ProbedSize + wire.MaxMessage)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	const none = ^uintptr(0)
	attr := &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{none, none, none, theirs.Fd()}, Env: []string{},
		Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are for this process alone
	}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", p.stub.Fd()), []string{inside.ProbeName}, attr)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("a process to look at files: %w", err)
	}
	h := &probeHelper{conn: ours, pid: pid}
	theirs.Close() // so that its end is the end of the socket
	ours.SetDeadline(time.Now().Add(slotPatience))
	answer, files, err := h.exchange(inside.Probe{Kind: inside.ProbeStart, UID: p.user})
	wire.CloseAll(files)
	if err == nil {
		_, err = inside.ReadProbed(answer)
	}
	if err != nil {
		h.end()
		return nil, fmt.Errorf("a process to look at files: %w", err)
	}
	return h, nil
}

// end ends a helper that is not looking at anything.
func (h *probeHelper) end() {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	reap(h.pid)
}

// abandon kills a helper that has not answered, and counts it as stuck until it has ended. Nobody waits for that: the kernel
// may let it go only when its file system answers.
func (p *prober) abandon(user uint32, h *probeHelper) {
	p.count(user, 0, 1)
	p.log.Warn("a process that looked at a client's file is abandoned", "uid", user, "pid", h.pid)
	p.kill(h, func() { p.count(user, -1, -1) })
}

// kill kills a helper, and calls ended when it has ended.
func (p *prober) kill(h *probeHelper, ended func()) {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	go func() {
		awaitEnd(h.pid)
		reap(h.pid)
		ended()
	}()
}

// reap waits for the end of a child.
func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// begin starts the first helper, so that the first look does not wait for it.
func (p *prober) begin() error {
	if err := p.closer.begin(p); err != nil {
		return err
	}
	h, err := p.start()
	if err != nil {
		return err
	}
	p.keep(h)
	return nil
}

// close ends the helpers that wait. Those that are stuck end when they can.
func (p *prober) close() {
	p.closer.finish()
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, h := range idle {
		if h.closing {
			p.kill(h, func() {})
			continue
		}
		h.end()
	}
}
