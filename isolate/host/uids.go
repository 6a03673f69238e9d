package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// Host user ids for jails are allocated in blocks, one block per jail; group ids have the same numbers. The first id
// of a block is the root of the jail's user namespace. The following JobUIDs ids are the jobs' users, each of which
// serves one live job.
const (
	uidBlock = 1024
	JobUIDs  = 512
	// FirstJobUID is the id of the first job's user inside the jail.
	FirstJobUID = 1000

	// DefaultUIDBase and DefaultUIDSize select a range between what systemd calls container ids (up to 0x6fffffff) and
	// its foreign ids (from 0x7ffe0000), see https://systemd.io/UIDS-GIDS, and far above what shadow's tools put into
	// /etc/subuid.
	DefaultUIDBase = 0x70000000
	DefaultUIDSize = 0x0f000000
)

// A uidPool allocates blocks for the whole machine. Its directory has one file per allocated block, named by the
// block's number and containing the instance's name, under a lock. A block of a killed instance is released by the
// supervisor that clears the instance, after its cgroups are empty: no id is reused while a process has it.
//
// The first block is never allocated: its first id is what front-ends of plain root become. It is always the same id,
// because it determines which stored state is theirs.
type uidPool struct {
	dir        string
	base, size uint32
	last       atomic.Uint32 // block allocated last; the search starts after it
}

// CheckUIDs refuses a range of host user ids that is too small, reaches into the host's own, or does not exist.
func CheckUIDs(base, size uint32) error {
	if base < 1<<16 || size < 2*uidBlock || uint64(base)+uint64(size) > 1<<32-2 {
		return fmt.Errorf("invalid host user ids %d+%d: use a range of at least %d ids above 65535", base, size, 2*uidBlock)
	}
	return nil
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

// take allocates a block for instance and returns its first id.
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

// release releases the block that begins at first.
func (p *uidPool) release(first uint32) {
	_ = os.Remove(p.file((first - p.base) / uidBlock))
}

// releaseAll releases every block of instance. Blocks may disappear meanwhile, because release takes no lock.
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
