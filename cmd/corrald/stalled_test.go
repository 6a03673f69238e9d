package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
)

// TestStopsWhileStalled: SIGTERM ends the supervisor while a client's file system does not answer. If one of its own
// threads waited for that file system, the process could not be ended.
func TestStopsWhileStalled(t *testing.T) {
	sandboxtest.RequireJails(t)
	files := sandboxtest.StartFileServer(t, 0)
	d := serve(t)
	fd, err := unix.Open(files.Dir+"/dir", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := os.NewFile(uintptr(fd), files.Dir+"/dir")
	defer dir.Close()
	conn, err := wire.Dial(d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	files.Stall(t)
	open := wire.Open{Flags: wire.FlagRepo | wire.FlagReadOnly, Repo: dir.Name()}
	if err := conn.Send(open.Append(1), dir); err != nil {
		t.Fatal(err)
	}
	files.AwaitRequest(t)
	d.Stop(t)
}
