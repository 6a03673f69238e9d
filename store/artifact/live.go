package artifact

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"corral/internal/peer"
)

const (
	// LiveSize is how much of the end of the output a feed keeps, in bytes.
	LiveSize = 64 << 10
	// maxFollowers is the maximum number of followers of one job; more are disconnected.
	maxFollowers = 4
	// liveDelay is how long a job runs before its feed listens: most jobs end before anybody could follow them.
	liveDelay = 100 * time.Millisecond
	// sendTimeout is how long a follower may not read before it is disconnected.
	sendTimeout = 10 * time.Second
)

// liveAddress returns the address of the feed of a handle.
func liveAddress(handle string) *net.UnixAddr {
	sum := sha256.Sum256([]byte("corral live 1\x00" + handle))
	return &net.UnixAddr{Net: "unix", Name: "@corral-live-" + hex.EncodeToString(sum[:16])}
}

// A Feed shows the output of a running job to the user whose front-end runs it. A nil *Feed keeps nothing. Its methods may be called by
// several goroutines at once.
//
// It keeps the last 64 KiB of a job's output, after redaction, both streams in the order in which they arrived. It listens on a
// socket in the abstract namespace (unix(7)), whose name is a hash of the handle of the output: the supervisor tells the handle to
// the job's user and to root alone. Each side checks the other's user id (SO_PEERCRED), so the name need not be secret. A feed
// reads nothing from its followers; the job never waits for one that is slow, which loses output instead.
type Feed struct {
	timer     *time.Timer
	mu        sync.Mutex
	ring      ring                   // guarded by mu
	ended     bool                   // guarded by mu
	news      chan struct{}          // guarded by mu: closed by the next Write or End
	listener  *net.UnixListener      // guarded by mu: nil before it listens
	followers map[*net.UnixConn]bool // guarded by mu
}

// NewFeed returns a feed for the output with this handle, which listens once its job has run for a moment. The caller calls End.
func NewFeed(handle string) *Feed { return startFeed(handle, liveDelay) }

func startFeed(handle string, after time.Duration) *Feed {
	f := &Feed{ring: ring{size: LiveSize}, news: make(chan struct{}), followers: map[*net.UnixConn]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(after, func() { f.listen(handle) })
	return f
}

// listen accepts followers until End. An error leaves the job without a feed: it is not worth failing the job.
func (f *Feed) listen(handle string) {
	l, err := net.ListenUnix("unix", liveAddress(handle))
	if err != nil {
		return
	}
	f.mu.Lock()
	f.listener = l
	ended := f.ended
	f.mu.Unlock()
	if ended {
		l.Close()
		return
	}
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if !f.admit(c) {
			c.Close()
			continue
		}
		go f.serve(c)
	}
}

// admit reports whether a follower may follow: it is this process's user or root, and there are not too many.
func (f *Feed) admit(c *net.UnixConn) bool {
	uid, err := peer.User(c)
	if err != nil || uid != 0 && uid != uint32(os.Geteuid()) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) >= maxFollowers {
		return false
	}
	f.followers[c] = true
	return true
}

// Write adds output. It never fails and never waits for a follower.
func (f *Feed) Write(p []byte) {
	if f == nil || len(p) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring.write(p)
	f.wake()
}

// wake tells the followers that there is more. The caller holds mu.
func (f *Feed) wake() {
	if len(f.followers) > 0 {
		close(f.news)
		f.news = make(chan struct{})
	}
}

// End ends the feed: followers get what is left and are disconnected.
func (f *Feed) End() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	f.timer.Stop()
	if f.listener != nil {
		f.listener.Close()
	}
	f.wake()
}

// next copies output from offset at on into p. It returns the offset of the first byte copied, which is larger than at if output
// was lost, the number of bytes, whether the feed has ended, and a channel that is closed when there is more.
func (f *Feed) next(at int64, p []byte) (from int64, n int, ended bool, news <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from = max(at, f.ring.first())
	n = f.ring.read(from, p)
	return from, n, f.ended, f.news
}

// feedHeader is the size of the header, which is sent first: the number of bytes that the feed does not have any more, and of
// those that it has had so far, little endian.
const feedHeader = 16

// serve sends the output to one follower.
func (f *Feed) serve(c *net.UnixConn) {
	defer func() {
		f.mu.Lock()
		delete(f.followers, c)
		f.mu.Unlock()
		c.Close()
	}()
	f.mu.Lock()
	at, total := f.ring.first(), f.ring.total
	f.mu.Unlock()
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(at)), uint64(total))
	if !sendTo(c, head) {
		return
	}
	gone := make(chan struct{})
	go func() { // a follower sends nothing: this ends when it has disconnected
		defer close(gone)
		_, _ = c.Read(make([]byte, 1))
	}()
	p := make([]byte, 16<<10)
	for {
		from, n, ended, news := f.next(at, p)
		if lost := from - at; lost > 0 && !sendTo(c, fmt.Appendf(nil, "\n... (%d bytes left out) ...\n", lost)) {
			return
		}
		at = from + int64(n)
		switch {
		case n > 0:
			if !sendTo(c, p[:n]) {
				return
			}
		case ended:
			return
		default:
			select {
			case <-news:
			case <-gone:
				return
			}
		}
	}
}

func sendTo(c *net.UnixConn, p []byte) bool {
	_ = c.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err := c.Write(p)
	return err == nil
}
