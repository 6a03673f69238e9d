package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Host user ids for jails come in blocks, one block a jail; group ids have the same numbers. In a block, the first id is
// the root of the jail's user namespace and the following jobUIDs are the jobs' users, of which each serves one live job.
const (
	uidBlock = 1024
	jobUIDs  = 512
	// firstJobUID is what the first job's user is called inside.
	firstJobUID = 1000

	// DefaultUIDBase and DefaultUIDSize lie between what systemd calls container ids (up to 0x6fffffff) and its foreign
	// ids (from 0x7ffe0000), see https://systemd.io/UIDS-GIDS, and far above what shadow's tools put into /etc/subuid.
	DefaultUIDBase = 0x70000000
	DefaultUIDSize = 0x0f000000
)

// uidPool hands out blocks for the whole machine: a directory with one file per block in use, named by its number and
// holding the instance's name, under a lock. A block of a killed instance is freed by who clears that instance, after
// its cgroups are empty: no id is used again while a process has it.
//
// The first block is no jail's: its first id is what front-ends of plain root become, always the same, for what they keep
// is found by it.
type uidPool struct {
	dir        string
	base, size uint32
	last       atomic.Uint32 // block that was taken last: the search begins behind it
}

func (p *uidPool) locked(f func() error) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	unlock, err := lockFile(filepath.Join(p.dir, "lock"), true)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// take reserves a block for instance and returns its first id.
func (p *uidPool) take(instance string) (uint32, error) {
	var first uint32
	err := p.locked(func() error {
		blocks, last := max(p.size/uidBlock, 1)-1, p.last.Load()
		for i := range blocks {
			n := 1 + (last+i)%blocks
			f, err := os.OpenFile(p.file(n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, os.ErrExist) {
				continue
			}
			if err != nil {
				return err
			}
			defer f.Close()
			p.last.Store(n)
			first = p.base + n*uidBlock
			_, err = f.WriteString(instance)
			return err
		}
		return fmt.Errorf("all %d blocks of host user ids are in use", blocks)
	})
	return first, err
}

// release gives the block that begins at first back.
func (p *uidPool) release(first uint32) {
	_ = os.Remove(p.file((first - p.base) / uidBlock))
}

// releaseAll gives back every block of instance. Others give back theirs meanwhile: release takes no lock.
func (p *uidPool) releaseAll(instance string) error {
	return p.locked(func() error {
		entries, err := os.ReadDir(p.dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil {
				continue
			}
			path := filepath.Join(p.dir, e.Name())
			owner, err := os.ReadFile(path)
			if err == nil && strings.TrimSpace(string(owner)) == instance {
				err = os.Remove(path)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

func (p *uidPool) file(block uint32) string {
	return filepath.Join(p.dir, strconv.FormatUint(uint64(block), 10))
}

// lockFile takes the lock of path, which is made if missing. It waits for it, or fails with unix.EWOULDBLOCK. The lock is
// free when the returned function is called or the process ends.
func lockFile(path string, wait bool) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
