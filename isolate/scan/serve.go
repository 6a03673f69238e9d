package scan

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An Op is a request to a scanner that runs as a process of its own, over a SOCK_SEQPACKET socket. A request is 12 bytes:
// the op and since, in nanoseconds since the Unix epoch; an answer is a header followed by Missed, if a flag says so, and paths,
// each terminated by NUL. Answers to OpKeepHooks and OpKeepAll have a different layout, see ReadKept.
type Op uint32

// The requests.
const (
	OpBaseline  Op = iota + 1 // remember the tree's current state
	OpChanged                 // report what has changed since
	OpUsage                   // sum up the space of files changed since
	OpKeepHooks               // list the paths that a job must not change, as of the last OpBaseline or OpChanged, see ReadKept
	OpKeepAll                 // likewise, with git directories as a whole
)

const (
	requestSize = 12
	headerSize  = 24
	// MaxAnswer is the maximum size of an answer, in bytes.
	MaxAnswer = headerSize + maxMissed + 1 + MaxPaths
	// maxMissed is the maximum size of Answer.Missed; of a longer path, the beginning is kept.
	maxMissed = 1 << 10
	// MaxPaths is the maximum total size of an answer's paths, each with its NUL, in bytes.
	MaxPaths = 32 << 10
)

// The flags of an answer.
const (
	flagIncomplete = 1 << iota
	flagArmed
	flagHeard
	flagUnfinished
	flagMissed
	flagLost
)

// An Answer is a scanner's reply. Paths are bytes chosen by a job.
type Answer struct {
	Paths         string // each terminated by NUL; in the order of Report.Paths
	More          uint32 // number of paths left out
	Incomplete    bool   // a bound was reached, or something could not be read
	Missed        string // what was not examined, or its beginning, as in Report.Missed; chosen by a job
	Bytes, Inodes int64  // for OpUsage
	// Armed, for OpBaseline and OpChanged, reports that everything examined is watched. As long as the inotify instance,
	// which comes with the answer to OpBaseline, has nothing to read, OpChanged would find nothing, and OpKeepHooks and
	// OpKeepAll would find the same as before. The one exception is a store into mapped memory: see the supervisor's Window.
	Armed bool
	// Heard, likewise: the inotify instance had events, which the scanner has read.
	Heard bool
	// Lost, likewise: so much happened that a path which was changed and put back may be left out.
	Lost bool
	// Unfinished, likewise: the tree is too large for one pass, and OpChanged would continue this one.
	Unfinished bool
}

// AppendRequest encodes a request.
func AppendRequest(op Op, since time.Time) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, requestSize), uint32(op))
	return binary.LittleEndian.AppendUint64(b, uint64(since.UnixNano()))
}

// serveTime is the timeout of one walk. A job's reply waits for it; anything not examined in time is examined next time,
// and the answer reports Incomplete.
const serveTime = 3 * time.Second

// ErrProtocol is returned for a malformed request or answer.
var ErrProtocol = errors.New("malformed message from or to a scanner")

// ReadAnswer decodes an answer. It comes from a process that read data of jobs: sizes are validated, paths are passed on
// unchanged.
func ReadAnswer(b []byte) (Answer, error) {
	if len(b) < headerSize || len(b) > MaxAnswer || (len(b) > headerSize && b[len(b)-1] != 0) {
		return Answer{}, ErrProtocol
	}
	rest, missed := string(b[headerSize:]), ""
	if b[4]&flagMissed != 0 {
		var ok bool
		if missed, rest, ok = strings.Cut(rest, "\x00"); !ok || len(missed) > maxMissed {
			return Answer{}, ErrProtocol
		}
	}
	if len(rest) > MaxPaths {
		return Answer{}, ErrProtocol
	}
	return Answer{
		More:       binary.LittleEndian.Uint32(b),
		Incomplete: b[4]&flagIncomplete != 0,
		Armed:      b[4]&flagArmed != 0,
		Heard:      b[4]&flagHeard != 0,
		Lost:       b[4]&flagLost != 0,
		Unfinished: b[4]&flagUnfinished != 0,
		Bytes:      int64(binary.LittleEndian.Uint64(b[8:])),
		Inodes:     int64(binary.LittleEndian.Uint64(b[16:])),
		Missed:     missed,
		Paths:      rest,
	}, nil
}

func (a *Answer) append() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, headerSize+len(a.Paths)), a.More)
	flags := uint32(0)
	for flag, set := range map[uint32]bool{
		flagIncomplete: a.Incomplete, flagArmed: a.Armed, flagHeard: a.Heard, flagUnfinished: a.Unfinished,
		flagMissed: a.Missed != "", flagLost: a.Lost,
	} {
		if set {
			flags |= flag
		}
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Bytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Inodes))
	if a.Missed != "" {
		b = append(append(b, a.Missed[:min(len(a.Missed), maxMissed)]...), 0)
	}
	return append(b, a.Paths...)
}

// Serve answers requests from socket, a descriptor number, about the tree below the working directory, until the other
// end is closed. common is the path of the git directory that the tree is a worktree of, or "": it is scanned too, and
// its paths are reported as absolute ones. Serve runs as a job: unprivileged, and without write access to either.
func Serve(socket int, common string) error {
	s, err := newServer(".", common)
	if err != nil {
		return err
	}
	request := make([]byte, requestSize)
	for {
		n, err := unix.Read(socket, request)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return nil
		case n != requestSize:
			return ErrProtocol
		}
		op, since := Op(binary.LittleEndian.Uint32(request)), time.Unix(0, int64(binary.LittleEndian.Uint64(request[4:])))
		answer, rights := s.answer(op, since), []byte(nil)
		if op == OpBaseline && s.events.on() {
			rights = unix.UnixRights(s.events.fd)
		}
		if err := unix.Sendmsg(socket, answer, rights, nil, unix.MSG_NOSIGNAL); err != nil {
			return errors.Join(err, io.ErrClosedPipe)
		}
	}
}

// A server holds the scanners of one jail.
type server struct {
	repo   *Scanner
	common *Scanner // nil: no common directory
	path   string   // of common
	events *events
}

func newServer(repo, common string) (*server, error) {
	s := &server{path: common, events: newEvents()}
	dir, err := os.Open(repo)
	if err != nil {
		return nil, err
	}
	if s.repo, err = New(dir, Bounds{Time: serveTime}); err != nil {
		return nil, err
	}
	s.repo.watch(s.events)
	if common == "" {
		return s, nil
	}
	if dir, err = os.Open(common); err != nil {
		return nil, err
	}
	if s.common, err = NewGitDir(dir, Bounds{Time: serveTime}); err != nil {
		return nil, err
	}
	s.common.watch(s.events)
	s.common.own = commonPlace
	s.repo.places = append(s.repo.places, s.common.places...)
	s.common.places = s.repo.places
	return s, nil
}

func (s *server) answer(op Op, since time.Time) []byte {
	if op == OpKeepHooks || op == OpKeepAll {
		return appendKept(keepIn(op == OpKeepAll, s.repo, s.common))
	}
	if op != OpUsage {
		s.events.drain()
	}
	a := s.repo.answer(op, since)
	a.Armed = s.repo.armed()
	if s.common != nil {
		b := s.common.answer(op, since)
		for i, p := range b.paths {
			if !path.IsAbs(p) {
				p = path.Join(s.path, p)
			}
			b.paths[i] = strings.TrimPrefix(p, s.repo.places[repoPlace].path+"/") // its configuration may name files of the tree
		}
		if a.Missed == "" && b.Missed != "" {
			a.Missed = path.Join(s.path, b.Missed)
		}
		a.paths = InTurn(a.paths, b.paths)
		a.More += b.More
		a.Incomplete, a.Unfinished = a.Incomplete || b.Incomplete, a.Unfinished || b.Unfinished
		a.Armed = a.Armed && s.common.armed()
		a.Bytes, a.Inodes = a.Bytes+b.Bytes, a.Inodes+b.Inodes
	}
	a.Armed = a.Armed && op != OpUsage && !a.Incomplete
	if e := s.events; e.on() {
		a.Heard, a.Lost = e.heard, e.lost && op != OpUsage
		if op != OpUsage {
			e.reset()
		}
	}
	a.join()
	return a.append()
}

// found is an Answer before its paths are joined.
type found struct {
	Answer
	paths []string
}

func (s *Scanner) answer(op Op, since time.Time) found {
	var a found
	var r Report
	var err error
	switch op {
	case OpBaseline:
		r, err = s.Baseline()
	case OpChanged:
		r, err = s.Changed(since)
	case OpUsage:
		a.Bytes, a.Inodes, err = s.Usage(since)
	}
	a.Incomplete, a.Missed, a.Unfinished = r.Incomplete || err != nil, r.Missed, r.Unfinished
	a.More, a.paths = uint32(r.More), r.Paths
	return a
}

// join fills Paths with as many paths as fit. A path that does not fit is left out, but not those after it.
func (a *found) join() {
	var paths strings.Builder
	for _, p := range a.paths {
		if paths.Len()+len(p)+1 > MaxPaths {
			a.More++
			continue
		}
		paths.WriteString(p)
		paths.WriteByte(0)
	}
	a.Paths = paths.String()
}
