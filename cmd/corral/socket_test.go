package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
)

// TestForeignSocket: if another program listens on the supervisor's socket, corral ends with an error.
func TestForeignSocket(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo := repository(t)
	for _, tt := range []struct {
		name string
		make func(t *testing.T, socket string)
		want string
	}{
		{"nothing", func(*testing.T, string) {}, "corral: no supervisor at SOCKET: no such file or directory\n"},
		{"a file", func(t *testing.T, socket string) {
			if err := os.WriteFile(socket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "corral: no supervisor at SOCKET: connection refused\nhint: "},
		{"a directory", func(t *testing.T, socket string) {
			if err := os.Mkdir(socket, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "corral: no supervisor at SOCKET: connection refused\nhint: "},
		{"nobody listens", func(t *testing.T, socket string) {
			l := listener(t, "unixpacket", socket, nil)
			l.SetUnlinkOnClose(false)
			l.Close()
		}, "corral: no supervisor at SOCKET: connection refused\nhint: no supervisor listens there"},
		{"a stream socket", func(t *testing.T, socket string) { listener(t, "unix", socket, nil) }, "protocol wrong type for socket\nhint: the socket has another type"},
		{"a datagram socket", func(t *testing.T, socket string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}, "protocol wrong type for socket\nhint: the socket has another type"},
		{"closes at once", func(t *testing.T, socket string) {
			listener(t, "unixpacket", socket, func(c *net.UnixConn) { c.Close() })
		}, "corral: "},
		{"closes without an answer", func(t *testing.T, socket string) {
			listener(t, "unixpacket", socket, func(c *net.UnixConn) {
				_, _ = c.Read(make([]byte, wire.MaxMessage))
				c.Close()
			})
		}, "corral: "},
		{"garbage", answers("hello, this is not a supervisor"), fmt.Sprintf("this is version %d: install corral and corrald of one release", wire.Version)},
		{"too short", answers("x"), "malformed message"},
		{"another release", answers(string([]byte{255, 255, 8, 0, 1, 0, 0, 0})), "install corral and corrald of one release"},
		{"a malformed result", answers(string(wire.Encode(wire.Empty(wire.OpResult), 1))), "malformed message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "socket")
			tt.make(t, socket)
			for _, args := range [][]string{{"run", "--supervisor", socket, "--repo", repo, "true"}, {"ps", "--supervisor", socket}} {
				got := corral(t, args...)
				want := strings.ReplaceAll(tt.want, "SOCKET", socket)
				if got.code != 125 || !strings.Contains(got.stderr, want) || got.stdout != "" || !strings.HasPrefix(got.stderr, "corral: ") {
					t.Errorf("%s: %+v, want %q", args[0], got, want)
				}
			}
		})
	}
}

// answers starts a server that answers every message with text, and keeps the descriptors that it receives.
func answers(text string) func(t *testing.T, socket string) {
	return func(t *testing.T, socket string) {
		listener(t, "unixpacket", socket, func(c *net.UnixConn) {
			b, control := make([]byte, wire.MaxMessage), make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
			for {
				n, cn, _, _, err := c.ReadMsgUnix(b, control)
				if err != nil || n == 0 {
					return
				}
				if messages, err := unix.ParseSocketControlMessage(control[:cn]); err == nil {
					for i := range messages {
						fds, _ := unix.ParseUnixRights(&messages[i])
						t.Cleanup(func() {
							for _, fd := range fds {
								unix.Close(fd)
							}
						})
					}
				}
				_, _ = c.Write([]byte(text))
			}
		})
	}
}

func listener(t *testing.T, network, socket string, serve func(*net.UnixConn)) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: socket, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if serve != nil {
				serve(c)
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l
}
