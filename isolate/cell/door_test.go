package cell

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/inside"
)

// door is a Door that the test has opened.
type door []*os.File

func (d door) Report() string { return "" }
func (d door) Close() string  { return "closed" }

// TestSocketsOfDoor: the sockets of a slot's door are in the network namespace of the slot: what is bound by them outside of the jail, the
// slot's own sockets reach, and nothing else of the host.
func TestSocketsOfDoor(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	sl, err := newTestJails(t, nil).enter(t, true).TakeSlot(false)
	if err != nil {
		t.Fatal(err)
	}
	defer sl.Release()
	var d door
	end, err := sl.UseDoor(func(sockets []*os.File) (Door, error) {
		d = sockets
		return d, nil
	})
	if err != nil || len(d) != inside.DoorSockets {
		t.Fatalf("%d sockets, %v", len(d), err)
	}
	for _, socket := range []*os.File{d[0], d[inside.DoorListener]} {
		if at, err := unix.Getsockname(fd(socket)); err != nil || *at.(*unix.SockaddrInet4) != (unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}}) {
			t.Errorf("the socket for names has address %+v, %v", at, err)
		}
	}
	listen := &unix.SockaddrInet4{Port: 443, Addr: [4]byte{198, 19, 7, 7}}
	if err := unix.Bind(fd(d[2]), listen); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd(d[2]), 1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		port int
		addr [4]byte
		want error
	}{
		{443, [4]byte{198, 19, 7, 8}, unix.ECONNREFUSED},
		{80, [4]byte{198, 19, 7, 7}, unix.ECONNREFUSED},
		{443, [4]byte{198, 20, 0, 1}, unix.ENETUNREACH},
		{80, [4]byte{169, 254, 169, 254}, unix.ENETUNREACH},
		{443, [4]byte{10, 0, 0, 1}, unix.ENETUNREACH},
		{443, listen.Addr, nil},
	} {
		if err := unix.Connect(fd(d[3]), &unix.SockaddrInet4{Port: tt.port, Addr: tt.addr}); err != tt.want { //nolint:errorlint // a system call's own
			t.Errorf("connect to %v port %d: %v, want %v", tt.addr, tt.port, err, tt.want)
		}
	}
	if got := end(); got != "closed" {
		t.Errorf("the end of the job reported %q", got)
	}
}

// TestLingeringSocketOfDoor: a corral-egress that was taken over can have the close of a socket that it had wait for an hour. The end of a
// job does not wait for it.
func TestLingeringSocketOfDoor(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	sl, err := newTestJails(t, nil).enter(t, true).TakeSlot(false)
	if err != nil {
		t.Fatal(err)
	}
	at := &unix.SockaddrInet4{Port: 443, Addr: [4]byte{198, 19, 7, 7}}
	from, to := fd(sl.door[2]), fd(sl.door[3])
	if err := errors.Join(unix.Bind(to, at), unix.Listen(to, 1), unix.Connect(from, at)); err != nil {
		t.Fatal(err)
	}
	peer, _, err := unix.Accept4(to, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(peer)
	if err := errors.Join(unix.SetNonblock(from, true), unix.SetsockoptLinger(from, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600})); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<20); err == nil; {
		_, err = unix.Write(from, b)
	}
	gone := make(chan struct{})
	go func() {
		sl.stub.conn.Close()
		sl.giveBack()
		close(gone)
	}()
	sandboxtest.Eventually(t, 20*time.Second, "the slot is given back", func() bool { return isClosed(gone) })
}

// TestSharedDoorKeepsSockets: closing the door of a session leaves its sockets to the caller, which has them closed like those of a slot.
func TestSharedDoorKeepsSockets(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	shared := sharedDoor{sockets: []*os.File{f}}
	if left := shared.close(); len(left) != 1 || fd(left[0]) < 0 {
		t.Errorf("%v", left)
	}
}

// fd returns the descriptor of f.
func fd(f *os.File) int { return int(f.Fd()) }

// TestDoorOnlyIfAllowed: without rules a slot has no door, and neither has the scanner in a jail with doors, nor a program of corral's own.
func TestDoorOnlyIfAllowed(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	s := newTestJails(t, nil)
	jails := map[bool]*Jail{false: s.enterNew(t), true: s.enter(t, true)}
	for _, tt := range []struct {
		door, plain bool
		want        inside.DoorKind
	}{{false, false, inside.NoDoor}, {true, true, inside.NoDoor}, {true, false, inside.OpenDoor}} {
		j := jails[tt.door]
		sl, err := j.newSlot(j.s.groupLimits(j.s.Defaults), j.key.profile, tt.plain)
		if err != nil {
			t.Fatal(err)
		}
		if got := sl.preparation().Door; got != tt.want || (len(sl.door) > 0) != (tt.want == inside.OpenDoor) {
			t.Errorf("%+v: a slot of kind %d has %d sockets", tt, got, len(sl.door))
		}
		if got := sl.doorKind("scanner"); got != inside.NoDoor {
			t.Errorf("%+v: the scanner's slot is of kind %d", tt, got)
		}
		sl.destroy()
	}
}
