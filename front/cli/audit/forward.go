package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/front/forward/status"
	"corral/front/privilege"
	"corral/front/state"
	"corral/internal/flock"
	"corral/isolate/client/embed"
	"corral/store/audit/reader"
)

// Descriptors of the child process.
const (
	openerFD = 3 + iota
	positionFD
	statusFD
)

// workerVerb is the verb of the child process of corral audit forward.
const workerVerb = "forward-worker"

// An opener is the process of root behind corral audit forward: it opens files of the audit log by number. It parses nothing else.
// What others wrote is read, and sent, by its child, which is not root.
type opener struct {
	dir    *os.Root
	socket *os.File
}

// Answers of the opener.
const (
	answerFailed = iota // followed by the errno
	answerFile          // followed by First and Later, with the descriptor
)

const answerSize = 1 + 8 + 8

// forward forwards the audit log until it is told to end.
func (o *options) forward() (code int, err error) {
	code = cli.Failure
	err = state.AsOperator(o.state, func() error {
		code, err = o.forwardAsRoot()
		return err
	})
	return code, err
}

func (o *options) forwardAsRoot() (int, error) {
	if !embed.Root() {
		return cli.Failure, errors.New("only root can read the audit log: run it with sudo, or as a service: systemctl enable --now corral-audit-forward")
	}
	dir, err := os.OpenRoot(filepath.Join(o.state, "audit"))
	if err != nil {
		return cli.Failure, fmt.Errorf("%w\nhint: the first supervisor creates the audit log; --state names another directory", err)
	}
	defer dir.Close() //nolint:errcheck // closing a directory
	position, reported, err := o.openPlaces()
	if err != nil {
		return cli.Failure, err
	}
	defer position.Close()
	defer reported.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		return cli.Failure, err
	}
	defer ours.Close()
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM, unix.SIGINT)
	cmd := exec.Command("/proc/self/exe", "audit", workerVerb, "--config", o.config)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs, position, reported}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return cli.Failure, err
	}
	go func() {
		for s := range told {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	(&opener{dir, ours}).serve()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil // it has said why
	}
	return exitCode(err), err
}

// openPlaces opens the files in which the child keeps its position and its status. Only one process has the position.
func (o *options) openPlaces() (position, reported *os.File, err error) {
	dir := filepath.Join(o.state, "audit-export")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, nil, err
	}
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	if position, err = os.OpenFile(filepath.Join(dir, "position"), flags, 0o600); err != nil {
		return nil, nil, err
	}
	if err := flock.Try(int(position.Fd()), unix.LOCK_EX); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("another process forwards this audit log: %w", err), position.Close())
	}
	path := filepath.Join(dir, "status")
	if filepath.Clean(o.state) == state.Supervisor {
		path = status.File
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, errors.Join(err, position.Close())
		}
	}
	if reported, err = os.OpenFile(path, flags, 0o644); err != nil {
		return nil, nil, errors.Join(err, position.Close())
	}
	if err := status.Hold(reported); err != nil {
		cli.Note(fmt.Sprintf("%s is locked by another process (%v): /metrics says that nothing is forwarded", path, err))
	}
	return position, reported, reported.Chmod(0o644) // whatever the umask is: corral serve reads it
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "opener"), os.NewFile(uintptr(fds[1]), "opener"), nil
}

// serve answers requests until the child has ended.
func (o *opener) serve() {
	request := make([]byte, 8)
	for {
		n, err := o.socket.Read(request)
		if err != nil || n != len(request) {
			return
		}
		if err := o.answer(binary.LittleEndian.Uint64(request)); err != nil {
			return
		}
	}
}

// answer opens the file with a record for the child.
func (o *opener) answer(seq uint64) error {
	f, err := reader.OpenFile(o.dir, seq)
	answer := make([]byte, answerSize)
	if err != nil {
		answer[0] = answerFailed
		errno := unix.EIO
		errors.As(err, &errno)
		if errors.Is(err, os.ErrNotExist) {
			errno = unix.ENOENT
		}
		binary.LittleEndian.PutUint64(answer[1:], uint64(errno))
		return unix.Sendmsg(int(o.socket.Fd()), answer, nil, nil, 0)
	}
	defer f.Close()
	answer[0] = answerFile
	binary.LittleEndian.PutUint64(answer[1:], f.First)
	binary.LittleEndian.PutUint64(answer[9:], f.Later)
	return unix.Sendmsg(int(o.socket.Fd()), answer, unix.UnixRights(int(f.Fd())), nil, 0)
}

// drop makes this process the user corral-audit or, without one, nobody: whoever called sudo has no business in what it reads.
func drop() error {
	who := privilege.Nobody()
	if named, ok := accountOf("corral-audit"); ok {
		who = named
	}
	return who.Become()
}
