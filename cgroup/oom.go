package cgroup

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// WatchOOM calls f each time the kernel has killed a process of the job because memory ran out, on hosts where it kills one
// process and not the group: v1 and hybrid. f should kill the rest of the job. It runs on its own goroutine, one call at a time, and must
// not call [Job.Remove], which waits for it. Remove ends the watch without calling f. WatchOOM may be called once per
// job, best right after its creation: earlier events are not reported. A watch costs a descriptor and no goroutine.
//
// On v2 the kernel kills the group (memory.oom.group): nothing is watched and f is never called.
//
// The kernel notifies before it kills (cgroup-v1/memory, section 10), and all groups below the one that ran out of memory:
// when it is an ancestor's limit, such as that of the container that the supervisor runs in, all jobs are told of it. The
// count of processes killed is each group's own, and tells which job it was.
func (g *Job) WatchOOM(f func()) error {
	if g.instance.tree.layout == "v2" {
		return nil
	}
	if err := g.instance.watcher.add(g, f); err != nil {
		return fmt.Errorf("watch for out-of-memory events: %w", err)
	}
	return nil
}

// A watcher waits for out-of-memory events of all jobs of an instance, on one goroutine that does not occupy a thread
// and runs only while a job is watched. The zero value is ready for use.
type watcher struct {
	mu   fault.Mutex
	poll *poll // guarded by mu; nil while no job is watched
}

// A poll is an epoll(7) descriptor and the jobs watched through it. The runtime's poller waits for the descriptor in
// turn.
type poll struct {
	file *os.File
	fd   int
	jobs map[int]*watched // by eventfd, guarded by the watcher's mu
	done chan struct{}
}

type watched struct {
	job   *Job
	f     func()
	kills int64       // processes that the kernel has killed; used by one callback at a time
	ended atomic.Bool // the watch has ended
	// guarded by the watcher's mu
	calling bool
	again   bool // another event arrived during the call
}

// add starts a job's watch.
func (w *watcher) add(g *Job, f func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.event >= 0 {
		return errors.New("the job is already watched")
	}
	event, err := openOOMEvent(g.in("memory"), g.meter[memoryEvents])
	if err != nil {
		return err
	}
	if w.poll == nil {
		if w.poll, err = w.start(); err != nil {
			_ = unix.Close(event)
			return err
		}
	}
	// Register the job first: the goroutine locks mu before it handles events.
	w.poll.jobs[event] = &watched{job: g, f: f}
	g.event = event
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(event)}
	if err := unix.EpollCtl(w.poll.fd, unix.EPOLL_CTL_ADD, event, &e); err != nil {
		return os.NewSyscallError("epoll_ctl", err) // Remove cleans up
	}
	return nil
}

// openOOMEvent returns an eventfd that the kernel signals when memory runs out for a group of v1, whose memory.oom_control is open:
// cgroup-v1/memory, section 10.
func openOOMEvent(dir group, control int) (int, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, os.NewSyscallError("eventfd", err)
	}
	order := fmt.Sprintf("%d %d", event, control)
	if err := dir.Write("cgroup.event_control", order); err != nil {
		_ = unix.Close(event)
		return -1, err
	}
	return event, nil
}

// start starts the watcher's goroutine. The caller holds mu.
func (w *watcher) start() (*poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// The runtime adds only non-blocking descriptors to its poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poll{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, jobs: map[int]*watched{}, done: make(chan struct{})}
	conn, err := p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the descriptor is not in the poller
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = conn.Read(func(uintptr) bool { return !w.handleEvents(p) }) // until p.file is closed
	}()
	return p, nil
}

// handleEvents handles the pending events, and reports whether to keep waiting.
func (w *watcher) handleEvents(p *poll) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.poll != p {
		return false
	}
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(p.fd, events, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false // only possible with a broken descriptor
		}
		if err == nil && n == 0 {
			return true
		}
		for _, e := range events[:max(0, n)] {
			w.handleEvent(p, int(e.Fd))
		}
	}
}

// handleEvent handles an event of the job with that eventfd. The caller holds mu.
func (w *watcher) handleEvent(p *poll, fd int) {
	g := p.jobs[fd]
	if g == nil || g.job.groupGone() {
		p.forget(fd)
		return
	}
	var count [8]byte // eventfd(2)
	if _, err := unix.Read(fd, count[:]); err != nil {
		return // the event is still pending and is reported again
	}
	if g.calling {
		g.again = true
		return
	}
	g.calling = true
	g.job.watch.Go(func() {
		for again := true; again; {
			if g.killed() {
				g.f()
			}
			fault.With(&w.mu, func() {
				again, g.again = g.again, false
				g.calling = again
			})
		}
	})
}

// killed reports whether the kernel has killed a process of the job since it last returned true. It waits for that, because
// the notification comes first, but not past the end of the watch.
func (g *watched) killed() bool {
	var room [256]byte
	for wait := range backoff(killPatience) {
		b, err := g.job.meter.read(memoryEvents, room[:])
		if err != nil {
			return false // Account fails, too
		}
		if n := valueOf(b, "oom_kill"); n > g.kills {
			g.kills = n
			return true
		}
		if g.ended.Load() {
			return false
		}
		time.Sleep(wait)
	}
	return false
}

// killPatience is how long the kernel may take from a notification to the kill: the task that is to make it may have used up
// its share of the processors. The result of a job counts its kills whenever they come.
const killPatience = 2 * time.Second

// forget removes an eventfd from the epoll set. close(2) alone removes it only if no child between fork and exec has
// a copy. The caller holds the watcher's mu.
func (p *poll) forget(event int) {
	if g := p.jobs[event]; g != nil {
		g.ended.Store(true)
	}
	delete(p.jobs, event)
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, event, nil)
}

// groupGone reports whether the job's group was removed from outside, in which case the kernel signals the eventfd as
// well.
func (g *Job) groupGone() bool {
	var room [1]byte
	_, err := unix.Pread(g.meter[memoryEvents], room[:], 0)
	return gone(err)
}

// remove ends a job's watch and waits for its callback. With the last watch it also waits for the goroutine to end.
func (w *watcher) remove(g *Job) {
	if last := w.drop(g); last != nil {
		last.file.Close()
		<-last.done
	}
	g.watch.Wait()
}

// drop forgets a job, and returns the poll if it was the last one.
func (w *watcher) drop(g *Job) (last *poll) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.event < 0 {
		return nil
	}
	if w.poll != nil {
		w.poll.forget(g.event)
		if len(w.poll.jobs) == 0 {
			last, w.poll = w.poll, nil
		}
	}
	_ = unix.Close(g.event)
	g.event = -1
	return last
}
