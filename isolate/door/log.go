package door

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"corral/internal/ratelimit"
	"corral/internal/text"
)

// Bounds of what the processes of one user write to the supervisor's log. A service manager drops lines of a service that writes too many,
// and so those about other users; a file that the log is written to fills the disk.
const (
	maxLine = 4 << 10 // bytes; a longer line is written in parts
	// omittedStep is how many bytes are read and not written before reading pauses: the supervisor's time is not bounded by a cgroup.
	omittedStep  = 16 << 10
	omittedPause = time.Millisecond
)

// LineRate bounds the lines of one user that are written.
var LineRate = ratelimit.Rate{Burst: 2048, PerSecond: 64}

// A lineLog passes lines of the processes of one user on to the supervisor's log, as far as their rate allows. It escapes the
// characters that no terminal should get, and reads nothing else.
type lineLog struct {
	to    io.Writer
	log   *slog.Logger
	payer uint32

	mu     sync.Mutex      // the copy of a process that has ended can go on for a moment
	lines  ratelimit.Lines // guarded by mu
	unread int             // guarded by mu: bytes since the last pause
}

// copy copies lines until the last process that has the other end of the pipe has closed it.
func (l *lineLog) copy(pipe *os.File) {
	defer pipe.Close()
	lines := bufio.NewReaderSize(pipe, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			l.write(string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *lineLog) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, omitted := l.lines.Allow(LineRate, time.Now())
	if !ok {
		if l.unread += len(line); l.unread > omittedStep {
			l.unread = 0
			time.Sleep(omittedPause)
		}
		return
	}
	if omitted > 0 {
		l.log.Warn(Program+": too many lines, not all were written", "uid", l.payer, "omitted", omitted)
	}
	_, _ = io.WriteString(l.to, text.Lines(strings.TrimSuffix(line, "\n"))+"\n") // nobody could be told
}
