package admit

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/probe"
)

// serveDirs returns what a supervisor with this configuration serves.
func serveDirs(t *testing.T, c Config) *Served {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	programs, err := host.LoadPrograms(filepath.Dir(sandboxtest.Bin(t, "corral-init")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(programs.Close)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(context.Background())
	probes, err := probe.New(ctx, probe.Config{
		Program: programs.Stub, User: host.DefaultUIDBase + 1, Payer: func(uid uint32) uint32 { return uid }, Log: c.Log,
	})
	if err != nil {
		end()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		probes.Close()
	})
	c.Private = []string{host.RunDir, host.DefaultStateDir}
	s, err := New(c, probes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
