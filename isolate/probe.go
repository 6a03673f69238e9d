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

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// A client may name or pass a directory on a file system that it serves itself (fuse(4), also below an overlay in a
// user namespace of its own). Accessing it waits for an answer that may never come, and once the server has read the
// request not even SIGKILL ends the wait. A thread of the supervisor would be lost, and the process could never exit.
// So helper processes make such accesses, called probes.

const (
	// maxUserProbes bounds the probes in progress for one user, including abandoned ones that have not ended.
	maxUserProbes = 8
	// maxProbes bounds them for all users. Each may have a process, a few hundred KiB, but none has a thread of the
	// supervisor.
	maxProbes = 256
	// maxIdleProbes is the maximum number of idle helper processes.
	maxIdleProbes = 4
	// probePatience is the timeout of a probe. A disk that has to spin up takes ten seconds.
	probePatience = 15 * time.Second
)

// A prober accesses files that clients control. What the kernel can answer from memory is read directly. For
// everything else it uses a helper process, which is confined to that and is abandoned if it does not answer in time:
// it is killed, and counts against its user until it has exited.
type prober struct {
	probeConfig
	ctx    context.Context // ends with the supervisor, and all waits for probes with it
	closer fileCloser

	mu      sync.Mutex
	idle    []*probeHelper
	users   map[uint32]*probeCount // guarded by mu: users with probes in progress
	all     probeCount             // guarded by mu
	changed chan struct{}          // guarded by mu: closed when a probe has ended; nil if no goroutine waits
}

// probeConfig is the configuration of a prober.
type probeConfig struct {
	Program  *os.File                // the helpers' program, corral-stub; owned by the caller
	User     uint32                  // user and group id of the helpers, which no job has
	Patience time.Duration           // timeout of a probe; 0 is probePatience
	Payer    func(uid uint32) uint32 // returns the user to whom a user's usage is charged
	Log      *slog.Logger
}

// newProber returns a prober whose first helper runs. It waits for no probe any more once ctx has ended. The caller must
// call close.
func newProber(ctx context.Context, c probeConfig) (*prober, error) {
	p := &prober{probeConfig: c, ctx: ctx}
	if p.Patience == 0 {
		p.Patience = probePatience
	}
	if err := p.begin(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// A probeCount counts probes.
type probeCount struct {
	busy  int // in progress, including stuck
	stuck int // abandoned
}

type probeHelper struct {
	conn *wire.Conn
	pid  int

	closing bool      // it is closing descriptors that it passed on, and will report when that is done
	user    uint32    // the user of that probe
	since   time.Time // when the closing began
}

// An identity identifies a directory and its owner.
type identity struct {
	host.Inode
	mode, uid, gid uint32
}

// identify returns the identity of a descriptor that a client passed. The error is a *job.Refusal if the user has too
// many probes in progress or the file system does not answer, otherwise the kernel's.
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

// openDir opens the directory at path, which must be absolute and contain no symbolic link, with O_PATH. Errors are
// as for identify.
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

// fileSystem returns the properties of a descriptor's file system. It always takes a helper process, because the
// kernel asks most file systems for their free space. Errors are as for identify.
func (p *prober) fileSystem(user uint32, f *os.File) (inside.Probed, error) {
	if err := p.acquire(user); err != nil {
		return inside.Probed{}, err
	}
	found, files, err := p.ask(user, inside.Probe{Kind: inside.ProbeLook}, f)
	wire.CloseAll(files)
	return found, err
}

func identityOf(p inside.Probed) identity {
	return identity{host.Inode{Dev: p.Dev, Ino: p.Ino}, p.Mode, p.UID, p.GID}
}

// identifyCached returns only what the kernel has in memory: with AT_STATX_DONT_SYNC neither FUSE nor a network file
// system is asked (statx(2)), also not through an overlay above one.
func identifyCached(fd int) (identity, error) {
	const needed = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_UID | unix.STATX_GID
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, needed, &st); err != nil {
		return identity{}, err
	}
	if st.Mask&needed != needed {
		return identity{}, unix.ENODATA
	}
	return identity{host.Inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}, uint32(st.Mode), st.Uid, st.Gid}, nil
}

// openDirCached opens path using only what the kernel has in memory: it fails if a file system would have to be asked
// (openat2(2), RESOLVE_CACHED). If only its identity could not be read, the directory is returned open with the
// error.
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

// acquire counts a probe of the user. At the maximum it waits, for at most p.Patience, until another probe ends, unless
// all of them are stuck: then it refuses at once.
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
			timer := time.NewTimer(p.Patience)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-changed:
		case <-over:
			return tooManyProbes(stuck)
		case <-p.ctx.Done():
			return host.ErrEnding
		}
	}
}

// errForeign is returned for a descriptor that is not O_PATH, a pipe or a memfd, the only kinds that clients send.
var errForeign = &job.Refusal{
	Step: "request", Message: "a descriptor is neither a directory opened with O_PATH nor a pipe nor a memfd",
	Hint: "pass only these: closing any other descriptor could block on its file system",
}

// receive receives the next message and its descriptors from a client's socket, through a helper. The helper checks
// the kind of each descriptor with calls that ask no file system, and passes on only those that can be held and
// closed without one. Errors are as for identify, or errForeign, io.EOF, wire.ErrMalformed.
func (p *prober) receive(user uint32, socket int) ([]byte, []*os.File, error) {
	if err := p.acquire(user); err != nil {
		return nil, nil, err
	}
	answer, files, err := p.query(user, inside.Probe{Kind: inside.ProbeReceive}, func(err error) bool {
		return err != nil // the helper exits: closing what it received may take as long as the client wants
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

// release ends a probe.
func (p *prober) release(user uint32) { p.count(user, -1, 0) }

// count adds to the counts of a user and of all, beyond the maximum if need be.
func (p *prober) count(user uint32, busy, stuck int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*probeCount{&p.all, p.of(user)} {
		c.busy += busy
		c.stuck += stuck
	}
	p.forgetUser(user)
	if p.changed != nil && busy < 0 {
		close(p.changed)
		p.changed = nil
	}
}

// forgetUser removes the count of a user without probes. The caller holds p.mu.
func (p *prober) forgetUser(user uint32) {
	if p.users[user].busy == 0 {
		delete(p.users, user)
	}
}

// A stalledError refuses a request because the file system of a client's directory did not answer in time. Unlike
// other errors of a probe it may be sent to the client: it reveals nothing that the client cannot see itself.
type stalledError struct{ *job.Refusal }

func (e stalledError) Unwrap() error { return e.Refusal }

func tooManyProbes(stuck int) error {
	return stalledError{&job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("too many probes in progress: the file systems of %d directories that you requested have not answered", stuck),
		Hint:    "stop or unmount the FUSE or network file system that hangs, then try again",
	}}
}

// ask makes a probe through a helper. It ends the probe that acquire counted.
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

// query sends a question to a helper and returns its answer. It ends the probe that acquire counted. ends reports
// whether the helper exits after an answer with this error.
func (p *prober) query(user uint32, question inside.Probe, ends func(error) bool, fds ...int) ([]byte, []*os.File, error) {
	h, err := p.helper()
	if err != nil {
		p.release(user)
		return nil, nil, err
	}
	answer, got, err := p.exchange(h, question, fds...)
	if err != nil {
		p.abandon(user, h)
		switch {
		case p.ctx.Err() != nil:
			err = host.ErrEnding
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = stalledError{&job.Refusal{
				Step: "repo", Message: fmt.Sprintf("the directory's file system has not answered for %v", p.Patience),
				Hint: "it is served by another program (FUSE) or over the network, and hangs",
			}}
		}
		return nil, nil, err
	}
	answer = slices.Clone(answer) // the helper's next answer overwrites it
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

// exchange sends a question and waits for the answer, for p.Patience at most, and not beyond the supervisor's end.
func (p *prober) exchange(h *probeHelper, question inside.Probe, fds ...int) ([]byte, []*os.File, error) {
	h.conn.SetDeadline(time.Now().Add(p.Patience))
	stop := context.AfterFunc(p.ctx, func() { h.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return h.exchange(question, fds...)
}

// exchange sends a question and waits for the answer.
func (h *probeHelper) exchange(question inside.Probe, fds ...int) ([]byte, []*os.File, error) {
	if err := h.conn.SendDescriptors(question.Append(), fds...); err != nil {
		return nil, nil, err
	}
	return h.conn.Receive()
}

// helper returns an idle helper or starts one. It skips helpers that are still closing descriptors and abandons those
// for which that takes too long, because otherwise one user would wait for another user's file system.
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
		case time.Since(h.since) > p.Patience:
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

// ready reports, without waiting, whether the helper can take a question. One that has exited cannot.
func (h *probeHelper) ready() bool {
	if h.closing {
		message, err := h.conn.Poll()
		h.closing = err != nil || message == nil
		return !h.closing
	}
	return !h.conn.Ended()
}

// keep keeps a helper for the next probe, or ends it.
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

// abandonClosing abandons a helper whose probe has already ended.
func (p *prober) abandonClosing(h *probeHelper) {
	p.count(h.user, 1, 0)
	p.killStuck(h.user, h)
}

// of returns the count of a user, adding it if necessary. The caller holds p.mu.
func (p *prober) of(user uint32) *probeCount {
	if p.users[user] == nil {
		if p.users == nil {
			p.users = map[uint32]*probeCount{}
		}
		p.users[user] = &probeCount{}
	}
	return p.users[user]
}

// start starts a helper, which is confined when start returns.
func (p *prober) start() (*probeHelper, error) {
	ours, theirs, err := wire.PairFor(inside.ProbedSize + wire.MaxMessage)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	const none = ^uintptr(0)
	attr := &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{none, none, none, theirs.Fd()}, Env: []string{},
		Sys: &syscall.SysProcAttr{Setsid: true}, // a terminal's signals are for the supervisor alone
	}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", p.Program.Fd()), []string{inside.ProbeName}, attr)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start a probe helper: %w", err)
	}
	h := &probeHelper{conn: ours, pid: pid}
	theirs.Close() // so that the socket closes when the helper exits
	ours.SetDeadline(time.Now().Add(host.SlotPatience))
	answer, files, err := h.exchange(inside.Probe{Kind: inside.ProbeStart, UID: p.User})
	wire.CloseAll(files)
	if err == nil {
		_, err = inside.ReadProbed(answer)
	}
	if err != nil {
		h.end()
		return nil, fmt.Errorf("start a probe helper: %w", err)
	}
	return h, nil
}

// end kills and reaps a helper that has no probe in progress.
func (h *probeHelper) end() {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	host.Reap(h.pid)
}

// abandon kills a helper that has not answered, and counts it as stuck until it has exited. Nothing waits for that:
// the kernel may not let it exit before its file system answers.
func (p *prober) abandon(user uint32, h *probeHelper) {
	p.Log.Warn("probe helper abandoned: a client's file system does not answer", "uid", user, "pid", h.pid)
	p.killStuck(user, h)
}

// killStuck kills a helper that is counted as busy for a user, and ends its count once it has exited; until then it counts as stuck.
// ended is closed after that.
func (p *prober) killStuck(user uint32, h *probeHelper) (ended <-chan struct{}) {
	p.count(user, 0, 1)
	done := make(chan struct{})
	p.kill(h, func() {
		p.count(user, -1, -1)
		close(done)
	})
	return done
}

// kill kills a helper, and calls ended in another goroutine once it has exited.
func (p *prober) kill(h *probeHelper, ended func()) {
	h.conn.Close()
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	go func() {
		host.AwaitEnd(h.pid)
		host.Reap(h.pid)
		ended()
	}()
}

// begin starts the first helper ahead of the first probe.
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

// close ends the idle helpers. Stuck ones exit when they can.
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

// mountID returns the id of an open file's mount (statx(2), STATX_MNT_ID), without asking a file system.
func mountID(f *os.File) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.ENODATA
	}
	return st.Mnt_id, nil
}
