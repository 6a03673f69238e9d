package artifact

import (
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
	"corral/store/at"
)

// A temp is a directory that becomes an artifact, with its files, which are empty at first. It is locked while dir
// is open, which shows other processes that its creator is alive.
type temp struct {
	name  string // "" once it has become an artifact
	dir   int
	files [len(artifactFiles)]int
}

const (
	tempPrefix = ".tmp-"
	gonePrefix = ".del-"
)

// makeTemp creates a temp. Before it is locked, a sweep may take it for a leftover and remove it; it is then created again, under
// another name: the sweep removes by name, and perhaps later.
func (d *diskDir) makeTemp(handle string) (*temp, error) {
	var err error
	for n := range 5 {
		t := &temp{name: fmt.Sprintf("%s%s.%d", tempPrefix, handle, n), dir: -1, files: [len(artifactFiles)]int{-1, -1, -1}}
		if err = unix.Mkdirat(d.fd, t.name, at.DirMode); err != nil {
			return nil, at.Err("mkdir", t.name, err)
		}
		if err = t.fill(d.fd); err == nil {
			return t, nil
		}
		d.Drop(t)
	}
	return nil, fmt.Errorf("cannot create a temporary directory: %w", err)
}

func (t *temp) fill(store int) (err error) {
	if t.dir, err = at.Open(store, t.name, at.Dir); err != nil {
		return err
	}
	if err = flock.Try(t.dir, unix.LOCK_EX); err != nil {
		return err
	}
	for i, name := range artifactFiles { // ENOENT if a sweep removed the directory
		if t.files[i], err = at.Open(t.dir, name, makeFlags); err != nil {
			return err
		}
	}
	return nil
}

// Writer returns a writer to a file, by its index in manifest.Files. It must not be used after Commit or Drop.
func (t *temp) Writer(i int) io.Writer { return fdWriter(t.files[i]) }

// fds returns the descriptors of t, files before their directory.
func (t *temp) fds() []int { return append(t.files[:len(t.files):len(t.files)], t.dir) }

// hand returns the descriptors and passes their ownership to the caller.
func (t *temp) hand() []int {
	fds := t.fds()
	t.dir, t.files = -1, [len(artifactFiles)]int{-1, -1, -1}
	return fds
}

// Drop closes t, and removes it unless it has become an artifact.
func (d *diskDir) Drop(t *temp) {
	if t.name != "" {
		_ = removeDir(d.fd, t.name) // if it fails, the next sweep removes it
	}
	for _, fd := range t.fds() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Prepare begins to create a temp for the artifact with that handle while its job runs: creating files takes a file system longer
// than writing them. The function that it returns waits for it; the temp must be passed to Commit or Drop.
func (d *diskDir) Prepare(handle string) (wait func() (*temp, error)) {
	wait = sync.OnceValues(func() (*temp, error) { return d.makeTemp(handle) })
	go wait() //nolint:errcheck // its other callers get the error
	return wait
}
