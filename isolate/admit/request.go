package admit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A Request is a job to run: the wire message and its descriptors.
type Request struct {
	wire.Run
	Payload, Stdin, Stdout, Stderr, RepoDir, CommonDir *os.File // owned by the request

	Narrowed bool // it would have written to a read-only repository, and reads it instead
}

// Close closes and clears the descriptors of a user's request.
func (r *Request) Close(p *probe.Prober, user uint32) {
	p.Discard(user, r.Payload, r.Stdin, r.Stdout, r.Stderr, r.RepoDir, r.CommonDir)
	r.Payload, r.Stdin, r.Stdout, r.Stderr, r.RepoDir, r.CommonDir = nil, nil, nil, nil, nil, nil
}

// RefusedResult converts an error to the result of a job that was not started.
func RefusedResult(err error) wire.Result {
	r := wire.Result{Outcome: wire.Refused, Step: "jail", Message: err.Error()}
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		r.Step, r.Errno, r.Message, r.Hint = refusal.Step, uint32(refusal.Errno), refusal.Message, refusal.Hint
	}
	return r
}

// CheckProfile refuses an unknown profile. "" leaves the choice to the supervisor.
func CheckProfile(name string) error {
	if name == "" || slices.Contains(seccomp.Profiles(), name) {
		return nil
	}
	return &job.Refusal{
		Step: "profile", Message: fmt.Sprintf("profile %q is not known", name), Hint: "must be " + strings.Join(seccomp.Profiles(), " or "),
	}
}

// Check refuses requests for reasons that do not depend on the repository, and returns the job's limits with defaults
// filled in.
func (s *Served) Check(peer host.Peer, q *Request) (job.Limits, error) {
	l := q.Limits
	if err := l.Check(); err != nil {
		return l, err
	}
	l = l.Or(s.Defaults)
	if err := l.Within(s.Ceilings); err != nil {
		return l, err
	}
	// In a session with a root of its own an absolute working directory is allowed, see session.checkRequest.
	if strings.HasPrefix(q.Dir, "/") && q.Session == "" || strings.IndexByte(q.Dir, 0) >= 0 {
		return l, &job.Refusal{Step: "cwd", Message: "the working directory must be a path relative to the repository"}
	}
	if !wire.Sealed(q.Payload) {
		return l, &job.Refusal{Step: "payload", Message: "the payload (arguments and environment) must be a sealed memfd"}
	}
	for _, f := range []*os.File{q.Stdin, q.Stdout, q.Stderr} {
		if f == nil {
			continue
		}
		if err := s.checkStream(peer, f); err != nil {
			return l, err
		}
	}
	return l, nil
}

// checkStream refuses a standard stream that is not an anonymous pipe made by the peer: a named pipe would be some
// user's file, whose owner Slot.Start changes.
func (s *Served) checkStream(peer host.Peer, f *os.File) error {
	// Only a pipe has a pipe size, and only the kernel is asked for it. A named pipe is on a real file system.
	_, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	var pipe probe.Identity
	if err == nil {
		pipe, err = probe.IdentifyCached(int(f.Fd()))
	}
	if err != nil || pipe.Dev != s.pipes || pipe.Mode&unix.S_IFMT != unix.S_IFIFO {
		return &job.Refusal{Step: "request", Message: "a standard stream is not an anonymous pipe: jobs get no files of the host"}
	}
	if !peer.Owns(pipe.UID) {
		return &job.Refusal{Step: "request", Message: "a standard stream is a pipe that another user created"}
	}
	return nil
}

// pipeDevice returns the device number of the kernel's internal file system of anonymous pipes. There is one, it is
// never unmounted, and no other file system has its number.
func pipeDevice() (uint64, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil {
		return 0, fmt.Errorf("fstat of a pipe: %w", err)
	}
	return st.Dev, nil
}

// Writes reports whether the job may write to the repository itself.
func (r *Request) Writes() bool {
	return r.Flags&(wire.FlagReadOnly|wire.FlagOverlay|wire.FlagNoRepo) == 0
}

// Narrow turns a request to write to the repository into one to read it. It returns false for tools, which need to
// write.
func (r *Request) Narrow() bool {
	if r.Tool != string(job.ToolNone) {
		return false
	}
	r.Flags = r.Flags&^(wire.FlagProtectHooks|wire.FlagProtectAll) | wire.FlagReadOnly
	r.Narrowed = true
	return true
}

// WorkDir returns the job's working directory: relative to the repository, or absolute.
func (r *Request) WorkDir() string {
	if r.Flags&wire.FlagNoRepo != 0 {
		return job.NoRepoDir
	}
	return r.Dir
}

// TooMany refuses a job because n are running, and most may run in scope.
func TooMany(n, most int, scope string) error {
	return &job.Refusal{
		Step: "request", Message: fmt.Sprintf("%d jobs are running, and the maximum %s is %d", n, scope, most),
		Hint: "try again when a job has ended",
	}
}
