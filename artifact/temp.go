package artifact

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A tempDir is a directory that becomes an artifact, with its files, which are empty at first. It is locked for as long
// as dir is open, which says that its maker lives.
type tempDir struct {
	name  string // "" when it has become an artifact
	dir   int
	files [len(fileNames)]int
}

const (
	tempPrefix = ".tmp-"
	gonePrefix = ".del-"
)

// makeTemp makes one. The sweep of another process may take it for one that a killed process left, before it is locked;
// then there is another try.
func (s *Store) makeTemp(handle string) (*tempDir, error) {
	var err error
	for range 5 {
		t := &tempDir{name: tempPrefix + handle, dir: -1, files: [len(fileNames)]int{-1, -1, -1}}
		if err = unix.Mkdirat(s.dir, t.name, dirMode); err != nil {
			return nil, errName("mkdir", t.name, err)
		}
		if err = t.fill(s.dir); err == nil {
			return t, nil
		}
		s.dropTemp(t)
	}
	return nil, fmt.Errorf("no directory to write to: %w", err)
}

func (t *tempDir) fill(store int) (err error) {
	if t.dir, err = openat(store, t.name, dirFlags); err != nil {
		return err
	}
	if err = tryLock(t.dir); err != nil {
		return err
	}
	for i, name := range fileNames { // ENOENT if the directory is removed by now
		if t.files[i], err = openat(t.dir, name, makeFlags); err != nil {
			return err
		}
	}
	return nil
}

// fds are the descriptors of t, files before their directory.
func (t *tempDir) fds() []int { return append(t.files[:len(t.files):len(t.files)], t.dir) }

// hand gives the descriptors away, which the caller is to close.
func (t *tempDir) hand() []int {
	fds := t.fds()
	t.dir, t.files = -1, [len(fileNames)]int{-1, -1, -1}
	return fds
}

// dropTemp removes t, unless it has become an artifact, and closes it.
func (s *Store) dropTemp(t *tempDir) {
	if t.name != "" {
		_ = removeDir(s.dir, t.name) // else the next sweep does
	}
	for _, fd := range t.fds() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// A pending is a tempDir that is being made, while the job runs: making files takes a file system longer than writing
// them.
type pending struct {
	done chan struct{}
	temp *tempDir // of these two, after done, one is nil
	err  error
}

func (s *Store) prepare(handle string) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if p.temp, p.err = s.makeTemp(handle); p.err == nil && s.syncer != nil {
			s.syncer.wind() // now, and not while a reply waits: to set a timer wakes who waits for timers
		}
	}()
	return p
}

// wait returns it when it is made.
func (p *pending) wait() (*tempDir, error) {
	<-p.done
	return p.temp, p.err
}
