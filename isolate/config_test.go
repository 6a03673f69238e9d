package isolate

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/admit"
	"corral/isolate/host"
)

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
	frontOf(t, s, connect(t, s, host.Peer{UID: owner}), newRepo(t)).Sh("true") // the first one still works
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
		{"few users", Config{Instance: "a", UIDBase: 1 << 20, UIDSize: 2*1024 - 1}, "user ids"},
		{"beyond the last user", Config{Instance: "a", UIDBase: 1<<32 - 2048, UIDSize: 4096}, "user ids"},
		{"no such repository", Config{Instance: "a", Repos: []admit.Entry{{Path: "/no/such/directory"}}}, ""},
	} {
		err := tt.config.complete()
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestConfigCompletes: defaults are filled in and do not exceed ceilings.
func TestConfigCompletes(t *testing.T) {
	c := Config{Instance: "a"}
	c.Ceilings.Memory = 1 << 20
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if c.UIDBase != host.DefaultUIDBase || c.UIDSize != host.DefaultUIDSize || c.MaxJobs == 0 || c.JailIdle == 0 || c.Log == nil || c.Defaults.PIDs == 0 {
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
