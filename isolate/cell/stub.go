package cell

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// A stub is the connection to a slot's process 1, which becomes the job.
type stub struct{ conn *wire.Conn }

func stubError(err error) error {
	if err != nil {
		return fmt.Errorf("the stub: %w", err)
	}
	return nil
}

// within sets the timeout for the stub's next reports, until lift is called.
func (s *stub) within(patience time.Duration) (lift func()) {
	s.conn.SetDeadline(time.Now().Add(patience))
	return func() { s.conn.SetDeadline(time.Time{}) }
}

// awaitReady waits until the stub has completed every step that does not depend on the job. With OpenDoor it returns the
// door's sockets, which the caller closes.
func (s *stub) awaitReady() (door []*os.File, err error) {
	defer s.within(host.SlotPatience)()
	defer func() {
		if err != nil {
			wire.CloseAll(door)
			door = nil
		}
	}()
	for {
		r, files, err := s.report()
		if r.Kind == inside.Door && len(files) == inside.DoorSockets && door == nil {
			door = files
			continue
		}
		wire.CloseAll(files)
		if err != nil {
			return door, fmt.Errorf("the stub: %w", err)
		}
		switch r.Kind {
		case inside.Hello:
		case inside.Ready:
			return door, nil
		case inside.Failed:
			return door, &job.Refusal{
				Step: r.Step, Errno: int(r.Errno), Message: fmt.Sprintf("confinement step %q: %v", r.Step, unix.Errno(r.Errno)),
			}
		default:
			return door, fmt.Errorf("the stub: %w", inside.ErrReport)
		}
	}
}

// sendMounts sends the stub the mounts of list; mounts makes them in the list's order.
func (s *stub) sendMounts(list []inside.Root, mounts func() ([]*os.File, error)) error {
	if len(list) == 0 {
		return nil
	}
	files, err := mounts()
	if err != nil {
		return err
	}
	defer wire.CloseAll(files)
	for n, m := range list {
		if err := s.conn.Send(m.Append(), files[n]); err != nil {
			return err
		}
	}
	return nil
}

// report receives the stub's next report. The caller closes the files.
func (s *stub) report() (inside.Report, []*os.File, error) {
	b, files, err := s.conn.Receive()
	if err != nil {
		return inside.Report{}, nil, err
	}
	r, err := inside.ReadReport(b)
	return r, files, err
}

// started waits for the report that the program was executed.
func (s *stub) started() error {
	defer s.within(host.SlotPatience)()
	r, files, err := s.report()
	wire.CloseAll(files)
	switch {
	case err != nil:
		return err
	case r.Kind == inside.Failed:
		return StepFailed(r)
	case r.Kind != inside.Started:
		return inside.ErrReport
	}
	return nil
}

// ErrSlotKilled means that the slot's processes were killed while it waited: it has not begun the job.
var ErrSlotKilled = errors.New("the processes prepared for the job were killed, by somebody on the host or for lack of memory")

// send sends the stub its plan and, if there is one, the list of paths to protect. It begins the job when it has both.
func (s *stub) send(plan *inside.Plan, kept *inside.Kept, files []*os.File) error {
	err := s.conn.Send(plan.Append(), files...)
	if err == nil && kept != nil {
		err = s.conn.Send(kept.Append())
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("%w: %w", ErrSlotKilled, err)
	}
	return err
}

// StepFailed returns the error for the report that a step of confinement failed.
func StepFailed(r inside.Report) error {
	return &job.Refusal{
		Step: r.Step, Errno: int(r.Errno),
		Message: fmt.Sprintf("%s: %v", r.Step, unix.Errno(r.Errno)),
	}
}
