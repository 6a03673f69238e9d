package host

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestUIDPool(t *testing.T) {
	const size = 40 // not counting the first block, which is never allocated
	p := &uidPool{dir: filepath.Join(t.TempDir(), "uids"), base: 1 << 20, size: (size+1)*uidBlock + uidBlock/2}
	var mu sync.Mutex
	owners := map[uint32]string{}
	var all sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		for range size / 2 {
			all.Go(func() {
				// A pool of its own, as each supervisor has one.
				first, err := (&uidPool{dir: p.dir, base: p.base, size: p.size}).take(name)
				mu.Lock()
				defer mu.Unlock()
				if owners[first] != "" || err != nil || first <= p.base || (first-p.base)%uidBlock != 0 || first+uidBlock > p.base+p.size {
					t.Errorf("block %d of %q: %v", first, owners[first], err)
				}
				owners[first] = name
			})
		}
	}
	all.Wait()
	if _, err := p.take("a"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("one too many: %v", err)
	}
	p.release(p.base + 7*uidBlock)
	if first, err := p.take("c"); err != nil || first != p.base+7*uidBlock {
		t.Errorf("the released one: %d, %v", first, err)
	}
	if err := p.releaseAll("a"); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(p.dir, "[0-9]*"))
	if err != nil || len(left) < size/2 || len(left) > size/2+1 {
		t.Errorf("%d blocks left, %v", len(left), err)
	}
	for _, file := range left {
		if name, err := os.ReadFile(file); err != nil || string(name) == "a" {
			t.Errorf("%s: %q, %v", file, name, err)
		}
	}
}

// TestUIDBlocksRotate: a released block is not the next one allocated, and the search wraps around.
func TestUIDBlocksRotate(t *testing.T) {
	const size = 3
	p := &uidPool{dir: filepath.Join(t.TempDir(), "uids"), base: 1 << 20, size: (size + 1) * uidBlock}
	for i := range uint32(3 * size) {
		first, err := p.take("a")
		if want := p.base + (1+i%size)*uidBlock; err != nil || first != want {
			t.Fatalf("take %d: %d, %v, want %d", i, first, err, want)
		}
		p.release(first)
	}
	if _, err := (&uidPool{dir: p.dir, base: 1 << 20, size: uidBlock - 1}).take("a"); err == nil {
		t.Error("a block was allocated from an empty range")
	}
}

// TestUIDsReleasedMeanwhile: an instance can be cleared while jails of another one end, which release blocks without
// the lock.
func TestUIDsReleasedMeanwhile(t *testing.T) {
	p := &uidPool{dir: filepath.Join(t.TempDir(), "uids"), base: 1 << 20, size: 100 * uidBlock}
	var ended atomic.Bool
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for !ended.Load() {
				first, err := p.take("other")
				if err != nil {
					t.Error(err)
					return
				}
				p.release(first)
			}
		})
	}
	for range 2000 {
		if err := p.releaseAll("mine"); err != nil {
			t.Error(err)
			break
		}
	}
	ended.Store(true)
	work.Wait()
}

// TestUIDBlock: the jobs' users and the jail's root fit into one block.
func TestUIDBlock(t *testing.T) {
	if 1+JobUIDs > uidBlock || DefaultUIDSize%uidBlock != 0 || uint64(DefaultUIDBase)+DefaultUIDSize > 0x7ffe0000 {
		t.Error("blocks overlap, or reach into systemd's")
	}
}
