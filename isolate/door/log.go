package door

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"corral/internal/fault"
	"corral/internal/ratelimit"
)

// Bounds of what the processes of one user write, and of what of that gets into the supervisor's log. A service manager drops lines of a
// service that writes too many, and so those about other users; a file that the log is written to fills the disk.
const (
	maxLine = 4 << 10 // bytes; a longer line is several
	// omittedStep is how many bytes are read and not written before reading pauses: the supervisor's time is not bounded by a cgroup.
	omittedStep  = 16 << 10
	omittedPause = time.Millisecond
)

// MaxLines is the maximum number of lines of one user that get into the log in any second.
const MaxLines = 64

// lineRate bounds the lines of one user. Within a second, a full bucket and half of MaxLines more are taken.
var lineRate = ratelimit.Rate{Burst: MaxLines / 2, PerSecond: MaxLines / 2}

// A lineLog passes lines of the processes of one user on to the supervisor's log, as far as their rate allows. Each is the value of an
// attribute: no text makes it look like a line of the supervisor's own. It reads nothing else of them.
type lineLog struct {
	log   *slog.Logger
	payer uint32

	mu     fault.Mutex     // the copy of a process that has ended can go on for a moment
	lines  ratelimit.Lines // guarded by mu
	unread int             // guarded by mu: bytes since the last pause
}

// copy copies lines until the last process that has the other end of the pipe has closed it.
func (l *lineLog) copy(pipe *os.File) {
	defer pipe.Close()
	fault.Do(l.log, "lines of "+Program, func() { l.copyAll(pipe) }, "uid", l.payer)
}

func (l *lineLog) copyAll(pipe *os.File) {
	lines := bufio.NewReaderSize(pipe, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			l.write(string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			l.end()
			return
		}
	}
}

func (l *lineLog) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, omitted := l.lines.Allow(lineRate, time.Now())
	if !ok {
		if l.unread += len(line); l.unread > omittedStep {
			l.unread = 0
			time.Sleep(omittedPause)
		}
		return
	}
	l.say(omitted, "line", strings.TrimSuffix(line, "\n"))
}

// end says how many lines were omitted since the last one. A process that was taken over reaches it once.
func (l *lineLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if omitted := l.lines.Omitted(); omitted > 0 {
		l.say(omitted)
	}
}

// say writes a line to the log. The caller holds mu.
func (l *lineLog) say(omitted int, attrs ...any) {
	attrs = append(attrs, "uid", l.payer)
	if omitted > 0 {
		attrs = append(attrs, "omitted", omitted)
	}
	l.log.Info(Program, attrs...)
}
