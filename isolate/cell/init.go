package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
)

// An initProcess is the connection to process 1 of a jail, and the state of that process.
type initProcess struct {
	conn    *wire.Conn
	ctx     context.Context // ends with the supervisor, and all waits for answers with it
	stuck   func()          // called when the process did not answer in time
	ended   chan struct{}   // closed by the caller when the process has exited
	overdue chan struct{}   // closed when the process did not exit in time
	endOnce sync.Once       // starts the timeout for the exit

	mu       sync.Mutex // one request at a time
	requests uint32     // guarded by mu
}

func newInitProcess(ctx context.Context, conn *wire.Conn, stuck func()) *initProcess {
	return &initProcess{conn: conn, ctx: ctx, stuck: stuck, ended: make(chan struct{}), overdue: make(chan struct{})}
}

// ask sends a request and returns the descriptor in the answer. It calls meanwhile before it waits for that. An init
// that does not answer in time may be blocked by the repository's file system: then ask calls stuck.
func (p *initProcess) ask(what uint32, meanwhile func(), files ...*os.File) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.request(what, meanwhile, files...)
}

// request is ask. The caller holds p.mu.
func (p *initProcess) request(what uint32, meanwhile func(), files ...*os.File) (*os.File, error) {
	p.requests++
	p.conn.SetDeadline(time.Now().Add(host.SlotPatience))
	defer context.AfterFunc(p.ctx, func() { p.conn.SetDeadline(time.Unix(1, 0)) })()
	if err := p.conn.Send(inside.AppendRequest(p.requests, what), files...); err != nil {
		return nil, p.failed(err)
	}
	meanwhile()
	answer, got, err := p.conn.Receive()
	if err != nil {
		return nil, p.failed(err)
	}
	number, errno, err := inside.ReadRequest(answer)
	if err == nil && errno != 0 {
		err = fmt.Errorf("the jail's init: %w", unix.Errno(errno))
	}
	if err == nil && (number != p.requests || len(got) != 1) {
		err = errors.New("the jail's init sent an answer that does not match the request")
	}
	if err != nil {
		wire.CloseAll(got)
		return nil, err
	}
	return got[0], nil
}

// connect begins a TCP connection to a loopback address in the network namespace of the init. When it returns the socket,
// the init has closed its own copy.
func (p *initProcess) connect(what uint32) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := p.request(what, func() {})
	if err != nil {
		return nil, err
	}
	answer, more, err := p.conn.Receive()
	if err != nil {
		f.Close()
		return nil, p.failed(err)
	}
	number, errno, err := inside.ReadRequest(answer)
	if err != nil || number != p.requests || errno != 0 || len(more) > 0 {
		wire.CloseAll(append(more, f))
		return nil, errors.New("the jail's init did not report that it has closed a socket")
	}
	return f, nil
}

func (p *initProcess) failed(err error) error {
	if p.ctx.Err() != nil {
		return host.ErrEnding
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.stuck()
	}
	return fmt.Errorf("the jail's init: %w", err)
}

// end closes the socket of process 1, which then exits, and with it every process of the jail.
func (p *initProcess) end() {
	p.conn.Close()
	p.endOnce.Do(func() {
		late := time.AfterFunc(host.SlotPatience, func() { close(p.overdue) })
		go func() {
			select {
			case <-p.ended:
				late.Stop()
			case <-p.overdue:
			}
		}()
	})
}

var errLeft = fmt.Errorf("not ended after %v", host.SlotPatience)

// await waits for the exit of process 1. The kernel completes that only when the jail's last process has exited, and
// a process that waits for a file system may never exit: after host.SlotPatience, await returns errLeft.
func (p *initProcess) await() error {
	select {
	case <-p.ended:
		return nil
	case <-p.overdue:
		return errLeft
	}
}
