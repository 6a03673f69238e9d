package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
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
	if 1+jobUIDs > uidBlock || DefaultUIDSize%uidBlock != 0 || uint64(DefaultUIDBase)+DefaultUIDSize > 0x7ffe0000 {
		t.Error("blocks overlap, or reach into systemd's")
	}
}

// TestInstanceNameUnique: two supervisors cannot have the same instance name.
func TestInstanceNameUnique(t *testing.T) {
	c := config(t)
	s := supervise(t, func(o *Config) { *o = c })
	if second, err := New(c); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), c.Instance) {
		if err == nil {
			_ = second.Close()
		}
		t.Errorf("a second one: %v", err)
	}
	(&front{t, s, connect(t, s, Peer{UID: owner}), newRepo(t)}).sh("true") // the first one still works
}

// TestRunDirOwner: names in the directory decide what is cleared, so it must be writable by root alone.
func TestRunDirOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	top := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"another's":   func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chown(path, owner, owner)) },
		"everybody's": func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) },
		"a link":      func(path string) error { return os.Symlink("/tmp", path) },
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"of open instances": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.Mkdir(path+"/instances", 0o755), os.Chmod(path+"/instances", 0o777))
		},
		"of linked instances": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.Symlink("/tmp", path+"/instances"))
		},
	} {
		path := filepath.Join(top, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if err := checkRunDir(path); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for range 2 {
		if err := checkRunDir(filepath.Join(top, "good")); err != nil {
			t.Error(err)
		}
	}
}

func TestConfig(t *testing.T) {
	long := strings.Repeat("x", 33)
	for _, tt := range []struct {
		name   string
		config Config
		want   string // in the error; "" for none
	}{
		{"least", Config{Instance: "a"}, ""},
		{"dashes", Config{Instance: "embedded-12"}, ""},
		{"no name", Config{}, "instance name"},
		{"a path", Config{Instance: "../x"}, "instance name"},
		{"a dot", Config{Instance: "."}, "instance name"},
		{"a dash first", Config{Instance: "-x"}, "instance name"},
		{"a new line", Config{Instance: "x\n"}, "instance name"},
		{"capitals", Config{Instance: "X"}, "instance name"},
		{"long", Config{Instance: long}, "instance name"},
		{"users of the system", Config{Instance: "a", UIDBase: 1000}, "user ids"},
		{"few users", Config{Instance: "a", UIDBase: 1 << 20, UIDSize: 2*uidBlock - 1}, "user ids"},
		{"beyond the last user", Config{Instance: "a", UIDBase: 1<<32 - 2048, UIDSize: 4096}, "user ids"},
		{"no such repository", Config{Instance: "a", Repos: []Repo{{Path: "/no/such/directory"}}}, ""},
	} {
		err := tt.config.complete()
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestConfigCompletes: the inode at a configured path is recorded, links in the path are refused, and defaults do not
// exceed ceilings.
func TestConfigCompletes(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, dir+"/repo", os.Getuid())
	if err := os.Symlink("repo", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	c := Config{Instance: "a", Repos: []Repo{{Path: dir + "/link/../repo"}, {Path: dir + "/link"}}}
	c.Ceilings.Memory = 1 << 20
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir+"/repo", &st); err != nil {
		t.Fatal(err)
	}
	if got := c.Repos[0].Path; got != dir+"/repo" || c.pinned[got] != (inode{st.Dev, st.Ino}) {
		t.Errorf("%s, %+v", got, c.pinned)
	}
	if err := c.bad[dir+"/link"]; len(c.pinned) != 1 || err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v, %+v", err, c.pinned)
	}
	if c.UIDBase != DefaultUIDBase || c.UIDSize != DefaultUIDSize || c.MaxJobs == 0 || c.JailIdle == 0 || c.Log == nil || c.Defaults.PIDs == 0 {
		t.Errorf("%+v", c)
	}
	if c.Defaults.Memory != 1<<20 {
		t.Errorf("default %d above the ceiling", c.Defaults.Memory)
	}
	// Without a configured ceiling the host's memory is one: a default must not exceed it.
	small := Config{Instance: "a"}
	small.Defaults.Memory = 1 << 50
	if err := small.complete(); err != nil || small.Defaults.Within(small.Ceilings) != nil {
		t.Errorf("defaults %+v above ceilings %+v, %v", small.Defaults, small.Ceilings, err)
	}
}

// TestNewRefuses: an invalid configuration leaves nothing behind.
func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"corral-init", "corral-stub"} {
		put(t, filepath.Join(dir, name), "x", 0o755, owner) // programs that run in every jail must be root's
	}
	for name, change := range map[string]func(*Config){
		"no programs":        func(c *Config) { c.Programs = "/no/such/directory" },
		"another's programs": func(c *Config) { c.Programs = dir },
		"bad name":           func(c *Config) { c.Instance = "." },
	} {
		c := config(t)
		instance := c.Instance
		change(&c)
		if s, err := New(c); err == nil {
			_ = s.Close()
			t.Errorf("%s: New succeeded", name)
		}
		if left := traces(instance); len(left) > 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
	}
}
