package artifact

import (
	"fmt"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/at"
)

// A tempDir is a directory that becomes an artifact, with its files, which are empty at first. It is locked while dir
// is open, which shows other processes that its creator is alive.
type tempDir struct {
	name  string // "" once it has become an artifact
	dir   int
	files [len(manifest.Files)]int
}

const (
	tempPrefix = ".tmp-"
	gonePrefix = ".del-"
)

// makeTemp creates a tempDir. Before it is locked, another process's sweep may take it for a leftover and remove it;
// it is then created again.
func (s *Store) makeTemp(handle string) (*tempDir, error) {
	var err error
	for range 5 {
		t := &tempDir{name: tempPrefix + handle, dir: -1, files: [len(manifest.Files)]int{-1, -1, -1}}
		if err = unix.Mkdirat(s.dir, t.name, at.DirMode); err != nil {
			return nil, at.Err("mkdir", t.name, err)
		}
		if err = t.fill(s.dir); err == nil {
			return t, nil
		}
		s.dropTemp(t)
	}
	return nil, fmt.Errorf("cannot create a temporary directory: %w", err)
}

func (t *tempDir) fill(store int) (err error) {
	if t.dir, err = at.Open(store, t.name, at.Dir); err != nil {
		return err
	}
	if err = at.TryLock(t.dir); err != nil {
		return err
	}
	for i, name := range manifest.Files { // ENOENT if a sweep removed the directory
		if t.files[i], err = at.Open(t.dir, name, makeFlags); err != nil {
			return err
		}
	}
	return nil
}

// fds returns the descriptors of t, files before their directory.
func (t *tempDir) fds() []int { return append(t.files[:len(t.files):len(t.files)], t.dir) }

// hand returns the descriptors and passes their ownership to the caller.
func (t *tempDir) hand() []int {
	fds := t.fds()
	t.dir, t.files = -1, [len(manifest.Files)]int{-1, -1, -1}
	return fds
}

// dropTemp closes t, and removes it unless it has become an artifact.
func (s *Store) dropTemp(t *tempDir) {
	if t.name != "" {
		_ = removeDir(s.dir, t.name) // if it fails, the next sweep removes it
	}
	for _, fd := range t.fds() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// A pending is a tempDir that is being created while the job runs: creating files takes a file system longer than
// writing them.
type pending struct {
	done chan struct{}
	temp *tempDir // after done is closed, one of temp and err is nil
	err  error
}

func (s *Store) prepare(handle string) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if p.temp, p.err = s.makeTemp(handle); p.err == nil && s.syncer != nil {
			s.syncer.wind() // start the timer now rather than while a reply waits: setting a timer wakes the thread that waits for timers
		}
	}()
	return p
}

// wait returns the tempDir once it is created.
func (p *pending) wait() (*tempDir, error) {
	<-p.done
	return p.temp, p.err
}
