package artifact

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/peer"
)

// ErrNotLive is returned by Follow if nobody serves the output: its job has ended.
var ErrNotLive = errors.New("no live output")

// Follow connects this often, and pauses in between: a job runs for a moment before its feed listens.
const (
	followAttempts = 20
	followPause    = 20 * time.Millisecond
)

// followTimeout bounds connecting and reading the header.
const followTimeout = 10 * time.Second

// Follow writes the output with this handle to w: what its feed has, and with more also what the job writes from then on, until the
// job ends. skipped is called first, with the number of bytes that the feed does not have any more. uid is the job's user: the
// output is not taken from anybody else. The caller is that user or root. If ctx ends, its error is returned.
func Follow(ctx context.Context, handle string, uid uint32, more bool, w io.Writer, skipped func(bytes int64)) error {
	c, err := dialFeed(ctx, handle)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := peer.User(c)
	if err == nil && got != uid {
		err = fmt.Errorf("the output is offered by user %d, but the job is user %d's", got, uid)
	}
	if err != nil {
		return err
	}
	head := make([]byte, feedHeader)
	_ = c.SetReadDeadline(time.Now().Add(followTimeout))
	if _, err := io.ReadFull(c, head); err != nil {
		return fmt.Errorf("the job's front-end does not show its output: it has %d followers at most, of the same user", maxFollowers)
	}
	from, total := int64(binary.LittleEndian.Uint64(head)), int64(binary.LittleEndian.Uint64(head[8:]))
	if from < 0 || total < from || total-from > LiveSize {
		return errors.New("the job's front-end sends something else than output")
	}
	skipped(from)
	if !more {
		_, err = io.CopyN(w, c, total-from)
		return err
	}
	_ = c.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err = io.Copy(w, c); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// dialFeed connects to the feed of a handle. It returns ErrNotLive if there is none.
func dialFeed(ctx context.Context, handle string) (*net.UnixConn, error) {
	for n := 1; ; n++ {
		c, err := net.DialUnix("unix", nil, liveAddress(handle))
		if !errors.Is(err, unix.ECONNREFUSED) {
			return c, err
		}
		if n == followAttempts {
			return nil, ErrNotLive
		}
		select {
		case <-time.After(followPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
