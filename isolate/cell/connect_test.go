package cell

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
	"corral/isolate/wire"
)

// TestConnectAwaitsClose: a socket that the init passed out is returned only when the init has said that it closed its own copy.
// Otherwise a client could have the init's close of it wait.
func TestConnectAwaitsClose(t *testing.T) {
	for name, tt := range map[string]struct {
		second []byte // what the init sends after the socket
		ok     bool
	}{
		"closed":         {inside.AppendRequest(1, 0), true},
		"another number": {inside.AppendRequest(2, 0), false},
		"an error":       {inside.AppendRequest(1, uint32(unix.EIO)), false},
		"too short":      {[]byte{1}, false},
		"ended":          {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := wire.Pair()
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			init, err := wire.NewConn(theirs)
			if err != nil {
				t.Fatal(err)
			}
			defer init.Close()
			type outcome struct {
				f   *os.File
				err error
			}
			done := make(chan outcome, 1)
			go func() {
				f, err := newInitProcess(context.Background(), ours, func() {}).connect(inside.ConnectTo(inside.AskConnect4, 80))
				done <- outcome{f, err}
			}()
			request, _, err := init.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if number, what, err := inside.ReadRequest(request); number != 1 || what != inside.AskConnect4|80<<16 || err != nil {
				t.Errorf("request %d for %x, %v", number, what, err)
			}
			if err := init.SendDescriptors(inside.AppendRequest(1, 0), 0); err != nil {
				t.Fatal(err)
			}
			select {
			case o := <-done:
				t.Fatalf("before the second answer: %+v", o)
			default:
			}
			if tt.second == nil {
				init.Close()
			} else if err := init.Send(tt.second); err != nil {
				t.Fatal(err)
			}
			o := <-done
			if (o.err == nil) != tt.ok || (o.f != nil) != tt.ok || o.f != nil && errors.Is(o.f.Close(), os.ErrClosed) {
				t.Errorf("%+v", o)
			}
		})
	}
}
