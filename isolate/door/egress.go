package door

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"corral/egress/control"
	"corral/internal/fault"
)

// An egress is the process of one user, through all of its restarts, with the doors that it answers for.
type egress struct {
	doors *Doors
	payer uint32
	uid   uint32
	uses  int         // guarded by doors.mu: doors, and requests for one
	idle  *time.Timer // calls retire; guarded by doors.mu
	lines *lineLog

	ending chan struct{} // closed when the egress is not used any more
	once   sync.Once

	mu   fault.Mutex
	now  *process         // guarded by mu: nil while none runs
	open map[uint64]*Door // guarded by mu
	// told are closed when the process has done what it was sent before, or has ended, the oldest first; guarded by mu.
	told    []chan struct{}
	strange int // guarded by mu: replies of the process that nobody waits for
	// outdated is set for a process that was ended because it has another store than it should have; guarded by mu.
	outdated bool
}

func newEgress(d *Doors, payer, uid uint32) *egress {
	e := &egress{
		doors: d, payer: payer, uid: uid, ending: make(chan struct{}), open: map[uint64]*Door{},
		lines: &lineLog{log: d.Log, payer: payer},
	}
	e.idle = time.AfterFunc(idleTime, e.retire)
	return e
}

// stop ends the process for good.
func (e *egress) stop() {
	e.once.Do(func() { close(e.ending) })
	e.hangUp()
}

// hangUp ends the process that runs now: it exits when its socket is closed, and is killed.
func (e *egress) hangUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil {
		e.now.conn.Shutdown()
	}
}

// run keeps a process running until the egress ends.
func (e *egress) run() {
	defer e.doors.forget(e)
	pause := e.doors.Pause
	for {
		began := time.Now()
		err := fault.Contain(e.doors.Log, "a process of "+Program, e.serve, "uid", e.payer)
		if e.isEnding() {
			return
		}
		if errors.Is(err, errOutdated) {
			e.doors.Log.Info(Program+" is started again: the store of packages has another bound", "uid", e.payer)
			continue
		}
		e.doors.Log.Error(Program+" ended: its doors are closed until it is started again", "uid", e.payer, "error", err, "after",
			time.Since(began))
		if time.Since(began) > time.Minute {
			pause = e.doors.Pause
		}
		select {
		case <-e.ending:
			return
		case <-time.After(pause):
		}
		pause = max(e.doors.Pause, min(2*pause, e.doors.Patience/2)) // what is asked for meanwhile waits for the next process
	}
}

func (e *egress) isEnding() bool {
	select {
	case <-e.ending:
		return true
	default:
		return false
	}
}

// serve runs one process to its end.
func (e *egress) serve() error {
	names := lookAtNames() // before the process reads them
	p, err := e.doors.start(e.payer, e.uid, e.lines)
	if err != nil {
		e.abandon(control.KindOpened, fmt.Errorf("network access: %w", err))
		return err
	}
	defer e.tell()
	defer p.end(e.doors)
	e.begin(p)
	defer e.followNames(names)()
	for err == nil && !e.isEnding() { // stop may have come before begin
		var message []byte
		if message, _, err = p.conn.Receive(); err == nil {
			err = e.reply(message)
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it has exited")
	}
	fault.With(&e.mu, func() {
		e.now = nil
		if e.outdated {
			e.outdated, err = false, errOutdated
		}
	})
	e.abandon(control.KindReported, fmt.Errorf("network access: %s: %w", Program, err))
	return err
}

// abandon tells the goroutines that wait for replies of this kind that there will be none. An Open waits for the next process,
// unless none could be started.
func (e *egress) abandon(kind control.Kind, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, door := range e.open {
		if door.wants == kind {
			door.wants = 0
			door.answer <- answer{err: err}
		}
	}
}

// begin makes p the process of the egress, and opens the doors there are: they were opened in a former process, or nobody was
// there to open them.
func (e *egress) begin(p *process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.strange = p, 0
	inTime := e.patience()
	for _, door := range e.open {
		door.again = door.wants == 0
		_ = e.send(door, control.KindOpen) // the same message was accepted before
		inTime()
	}
}

// send sends a message about a door, if a process runs. The error is that of a message that cannot be sent to any process. The
// caller holds e.mu.
func (e *egress) send(door *Door, kind control.Kind) error {
	if e.now == nil {
		return nil
	}
	var m control.Message
	var files []*os.File
	o := &door.opening
	switch kind {
	case control.KindOpen:
		files = o.Sockets
		m = control.Open{
			Door: door.number, Name: o.Name, Request: o.Request, Access: door.access, Ask: o.Ask, Placeholder: o.Placeholder,
			Authority: o.Authority, Again: door.again,
		}
	case control.KindUpdate:
		m = control.Update{Door: door.number, Access: door.access}
	case control.KindReport:
		m = control.Report{Door: door.number}
	default:
		m = control.Close{Door: door.number}
	}
	message, err := control.Encode(m)
	if err != nil {
		return err
	}
	if err = e.now.conn.Send(message, files...); err != nil {
		e.now.conn.Shutdown() // it has ended, or reads nothing: the next process is sent all doors
	}
	return nil
}

// patienceForAll is how many times Config.Patience a process may take to read messages about all of its doors. It could read each
// message in time, and all of them in hours.
const patienceForAll = 4

// patience returns a function that ends the process if it reads too slowly. The caller of both holds e.mu.
func (e *egress) patience() (inTime func()) {
	began := time.Now()
	return func() {
		if e.now != nil && time.Since(began) > patienceForAll*e.doors.Patience {
			e.now.conn.Shutdown()
		}
	}
}

// add opens a door, and returns why there is none, "" if there is.
func (e *egress) add(door *Door) (why string, err error) {
	access := door.opening.current()
	fault.With(&e.mu, func() {
		e.open[door.number] = door
		door.wants, door.access = control.KindOpened, access
		err = e.send(door, control.KindOpen)
	})
	if err != nil {
		return "", err
	}
	return e.await(door)
}

// summary requests a report, or the end of a door. Without an answer, it says that: a job that makes corral-egress end must not look like
// one that reached nothing.
func (e *egress) summary(door *Door, kind control.Kind) string {
	var running, asked bool
	var err error
	fault.With(&e.mu, func() {
		running, asked = e.now != nil, door.wants != 0
		if running && !asked {
			door.wants = control.KindReported
			err = e.send(door, kind)
		}
	})
	switch {
	case asked:
		return "" // another job of the session is told
	case !running:
		return control.Lost()
	}
	text := ""
	if err == nil {
		text, err = e.await(door)
	}
	e.doors.report("no report of what a job reached", err)
	if err != nil {
		return control.Lost()
	}
	return text
}

// await waits for the answer to the message about a door that was sent last. A process that does not answer is ended.
func (e *egress) await(door *Door) (string, error) {
	timeout := time.NewTimer(e.doors.Patience)
	defer timeout.Stop()
	select {
	case a := <-door.answer:
		return a.text, a.err
	case <-e.ending:
	case <-timeout.C:
		e.hangUp()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	door.wants = 0
	select {
	case a := <-door.answer: // it came meanwhile
		return a.text, a.err
	default:
		return "", errNoAnswer
	}
}

var errOutdated = errors.New("it has another store than the configuration says")

var errNoAnswer = errors.New("network access: " + Program + " does not answer in time")

var errUnexpected = errors.New("it sent a message without a request")

// maxStrange is how many replies about doors that are closed are read of a process: each door that is opened again can have one. One that
// goes on has the supervisor do nothing else but read.
const maxStrange = 4096

// reply passes a reply on to the goroutine that waits for it.
func (e *egress) reply(message []byte) error {
	r, err := control.ReadReply(message)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	door := e.open[r.Door]
	switch {
	case r.Door == control.NoDoor && r.Kind == control.KindReported && len(e.told) > 0:
		close(e.told[0])
		e.told = e.told[1:]
	case door == nil: // the goroutine that asked has given up
		if e.strange++; e.strange > maxStrange {
			return errUnexpected
		}
	case door.again && r.Kind == control.KindOpened:
		door.again = false
		if r.Text != "" { // the rules were changed meanwhile, and do not allow what the job asked for
			e.doors.Log.Info(Program+": a door stays closed", "name", door.opening.Name)
		}
	case door.wants == r.Kind:
		door.wants = 0
		door.answer <- answer{text: r.Text}
	default:
		return errUnexpected
	}
	return nil
}

// none allows nothing.
var none = control.Access{Rules: []byte("{}")}

func (o *Opening) current() control.Access {
	if access := o.Access(); access.Rules != nil {
		return access
	}
	return none
}

// update applies changed rules to the open doors, and returns when they apply: the process has answered, or it has ended, and the next one
// is sent the new rules.
func (e *egress) update() {
	done := e.sendRules()
	if done == nil {
		return
	}
	timeout := time.NewTimer(e.doors.Patience)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		e.hangUp()
		<-done
	}
}

// tell tells those who wait for a process that has ended.
func (e *egress) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, done := range e.told {
		close(done)
	}
	e.told = nil
}

// sendRules sends changed rules to the process. The channel is closed when it has done what they say, or has ended; nil: none runs.
func (e *egress) sendRules() (done chan struct{}) {
	keep := e.doors.keeps(e.payer)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil && e.now.keep != keep { // it got its store, or none, when it was started
		e.outdated = true
		e.now.conn.Shutdown()
	}
	inTime := e.patience()
	for _, door := range e.open {
		inTime() // otherwise the next process is sent the new rules
		door.access = door.opening.current()
		if err := e.send(door, control.KindUpdate); err != nil { // too long: the process would go on with the former rules
			door.access = none
			e.doors.report("new rules not sent: nothing is allowed", errors.Join(err, e.send(door, control.KindUpdate)))
		}
	}
	if e.now == nil {
		return nil
	}
	done = make(chan struct{})
	e.told = append(e.told, done)
	_ = e.send(&Door{number: control.NoDoor}, control.KindReport) // if it cannot be sent, the process ends
	return done
}

// remove forgets a door. A process without doors ends after a while.
func (e *egress) remove(door *Door) {
	fault.With(&e.mu, func() { delete(e.open, door.number) })
	d := e.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.uses--; e.uses == 0 {
		e.idle.Reset(idleTime)
	}
}

// retire ends the egress if it has no doors.
func (e *egress) retire() {
	d := e.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.uses == 0 && d.users[e.payer] == e {
		delete(d.users, e.payer)
		e.stop()
	}
}
