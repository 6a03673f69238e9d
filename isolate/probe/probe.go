package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
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
	// MaxUser bounds the probes in progress for one user, including abandoned ones that have not ended.
	MaxUser = 8
	// maxEntry bounds them for one directory of the operator's configuration.
	maxEntry = 1
	// MaxAll bounds them for all users. Each may have a process, a few hundred KiB, but none has a thread of the
	// supervisor.
	MaxAll = 256
	// maxIdleProbes is the maximum number of idle helper processes.
	maxIdleProbes = 4
	// DefaultPatience is the timeout of a probe. A disk that has to spin up takes ten seconds.
	DefaultPatience = 15 * time.Second
)

// A Prober accesses files that clients control. What the kernel can answer from memory is read directly. For
// everything else it uses a helper process, which is confined to that and is abandoned if it does not answer in time:
// it is killed, and counts against its user until it has exited.
type Prober struct {
	Config
	ctx    context.Context // ends with the supervisor, and all waits for probes with it
	closer fileCloser
	disks  disks

	mu      fault.Mutex
	idle    []*helper
	payers  map[payer]*count // guarded by mu: who has probes in progress
	all     count            // guarded by mu
	changed chan struct{}    // guarded by mu: closed when a probe has ended; nil if no goroutine waits
}

// Config is the configuration of a prober.
type Config struct {
	Program  *os.File                // the helpers' program, corral-stub; owned by the caller
	User     uint32                  // user and group id of the helpers, which no job has
	Patience time.Duration           // timeout of a probe; 0 is DefaultPatience
	Payer    func(uid uint32) uint32 // returns the user to whom a user's usage is charged
	Log      *slog.Logger
}

// New returns a prober whose first helper runs. It waits for no probe any more once ctx has ended. The caller must
// call Close.
func New(ctx context.Context, c Config) (*Prober, error) {
	p := &Prober{Config: c, ctx: ctx}
	if p.Patience == 0 {
		p.Patience = DefaultPatience
	}
	if err := p.begin(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// An Identity identifies a directory and its owner.
type Identity struct {
	host.Inode
	Mode, UID, GID uint32
}

// Identify returns the identity of a descriptor that a client passed. The error is a *job.Refusal if the user has too
// many probes in progress or the file system does not answer, otherwise the kernel's.
func (p *Prober) Identify(user uint32, f *os.File) (Identity, error) {
	if err := p.acquire(userOf(user)); err != nil {
		return Identity{}, err
	}
	if id, err := IdentifyCached(int(f.Fd())); err == nil {
		p.release(userOf(user))
		return id, nil
	}
	found, files, err := p.ask(userOf(user), inside.Probe{Kind: inside.ProbeLook}, f)
	wire.CloseAll(files)
	return identityOf(found), err
}

// OpenDir opens the directory at path, which must be absolute and contain no symbolic link, with O_PATH. Errors are
// as for Identify.
func (p *Prober) OpenDir(user uint32, path string) (*os.File, Identity, error) {
	return p.openDir(userOf(user), path)
}

func (p *Prober) openDir(by payer, path string) (*os.File, Identity, error) {
	if err := p.acquire(by); err != nil {
		return nil, Identity{}, err
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	f, id, err := openDirCached(path, how)
	if err == nil {
		p.release(by)
		return f, id, nil
	}
	p.discard(by, f)
	question := inside.Probe{Kind: inside.ProbeOpen, Flags: how.Flags, Resolve: how.Resolve, Path: path}
	found, files, err := p.ask(by, question)
	if err == nil && len(files) != 1 {
		err = inside.ErrReport
	}
	if err != nil {
		wire.CloseAll(files)
		return nil, Identity{}, err
	}
	return files[0], identityOf(found), nil
}

// FileSystem returns the properties of a descriptor's file system. It takes a helper process, because the kernel asks most file
// systems for their free space, unless the file system is known from Hold. Errors are as for Identify.
func (p *Prober) FileSystem(user uint32, f *os.File) (inside.Probed, error) {
	if found, ok := p.fromDisk(f); ok {
		return found, nil
	}
	if err := p.acquire(userOf(user)); err != nil {
		return inside.Probed{}, err
	}
	found, files, err := p.ask(userOf(user), inside.Probe{Kind: inside.ProbeLook}, f)
	wire.CloseAll(files)
	return found, err
}

func identityOf(p inside.Probed) Identity {
	return Identity{host.Inode{Dev: p.Dev, Ino: p.Ino}, p.Mode, p.UID, p.GID}
}

// IdentifyCached returns only what the kernel has in memory: with AT_STATX_DONT_SYNC neither FUSE nor a network file
// system is asked (statx(2)), also not through an overlay above one.
func IdentifyCached(fd int) (Identity, error) {
	const needed = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_UID | unix.STATX_GID
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, needed, &st); err != nil {
		return Identity{}, err
	}
	if st.Mask&needed != needed {
		return Identity{}, unix.ENODATA
	}
	return Identity{host.Inode{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}, uint32(st.Mode), st.Uid, st.Gid}, nil
}

// openDirCached opens path using only what the kernel has in memory: it fails if a file system would have to be asked
// (openat2(2), RESOLVE_CACHED). If only its identity could not be read, the directory is returned open with the
// error.
func openDirCached(path string, how unix.OpenHow) (*os.File, Identity, error) {
	const cached = 0x20 // RESOLVE_CACHED, which x/sys lacks
	how.Resolve |= cached
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return nil, Identity{}, err
	}
	id, err := IdentifyCached(fd)
	return os.NewFile(uintptr(fd), path), id, err
}

// ErrForeign is returned for a descriptor that is not O_PATH, a pipe or a memfd, the only kinds that clients send.
var ErrForeign = &job.Refusal{
	Step: "request", Message: "a descriptor is neither a directory opened with O_PATH nor a pipe nor a memfd",
	Hint: "pass only these: closing any other descriptor could block on its file system",
}

// Receive receives the next message and its descriptors from a client's socket, through a helper. The helper checks
// the kind of each descriptor with calls that ask no file system, and passes on only those that can be held and
// closed without one. Errors are as for Identify, or ErrForeign, io.EOF, wire.ErrMalformed.
func (p *Prober) Receive(user uint32, socket int) ([]byte, []*os.File, error) {
	if err := p.acquire(userOf(user)); err != nil {
		return nil, nil, err
	}
	answer, files, err := p.query(userOf(user), request{
		Probe: inside.Probe{Kind: inside.ProbeReceive}, fds: []int{socket},
		ends: func(err error) bool { return err != nil }, // closing what it received may take as long as the client wants
	})
	var message []byte
	if err == nil {
		message, err = inside.Received(answer)
	}
	switch {
	case errors.Is(err, unix.EBADFD):
		err = ErrForeign
	case errors.Is(err, unix.EPIPE):
		err = io.EOF
	case errors.Is(err, unix.EMSGSIZE):
		err = wire.ErrMalformed
	}
	return message, files, err
}

// ask makes a probe through a helper. It ends the probe that acquire counted.
func (p *Prober) ask(by payer, question inside.Probe, files ...*os.File) (inside.Probed, []*os.File, error) {
	fds := make([]int, 0, 1)
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	answer, got, err := p.query(by, request{Probe: question, fds: fds})
	if err != nil {
		return inside.Probed{}, nil, err
	}
	found, err := inside.ReadProbed(answer)
	return found, got, err
}

// query sends a request to a helper and returns its answer. It ends the probe that acquire counted.
func (p *Prober) query(by payer, r request) ([]byte, []*os.File, error) {
	h, err := p.takeHelper()
	if err != nil {
		p.release(by)
		return nil, nil, err
	}
	answer, got, err := p.exchange(h, r)
	if err != nil {
		p.abandon(by, h)
		switch {
		case p.ctx.Err() != nil:
			err = host.ErrEnding
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = StalledError{&job.Refusal{
				Step: "repo", Message: fmt.Sprintf("the directory's file system has not answered for %v", p.Patience),
				Hint: "it is served by another program (FUSE) or over the network, and hangs",
			}}
		}
		return nil, nil, err
	}
	answer = slices.Clone(answer) // the helper's next answer overwrites it
	if _, err := inside.Received(answer); r.ends != nil && r.ends(err) {
		p.killStuck(by, h) // the connection ends, and its end is logged
		return answer, got, nil
	}
	if h.closing = inside.Closing(answer); h.closing {
		h.by, h.since = by, time.Now()
	}
	p.keep(h)
	p.release(by)
	return answer, got, nil
}

// begin starts the first helper ahead of the first probe.
func (p *Prober) begin() error {
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

// Close ends the idle helpers. Stuck ones exit when they can.
func (p *Prober) Close() {
	p.closer.finish()
	var idle []*helper
	fault.With(&p.mu, func() { idle, p.idle = p.idle, nil })
	for _, h := range idle {
		if h.closing {
			p.kill(h, func() {})
			continue
		}
		h.end()
	}
}

// MountID returns the id of an open file's mount (statx(2), STATX_MNT_ID), without asking a file system.
func MountID(f *os.File) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, unix.ENODATA
	}
	return st.Mnt_id, nil
}
