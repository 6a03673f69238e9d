package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// repository creates a repository with files that tests run into.
func repository(t *testing.T) string {
	t.Helper()
	repo := sandboxtest.OpenDir(t)
	err := errors.Join(
		os.MkdirAll(filepath.Join(repo, "sub", "deep"), 0o755),
		os.WriteFile(filepath.Join(repo, "plain"), []byte("plain text"), 0o644),
		os.WriteFile(filepath.Join(repo, "garbage"), []byte("\x7fELF, but no more"), 0o755),
		os.WriteFile(filepath.Join(repo, "lost"), []byte("#!/no/such/interpreter\n"), 0o755),
		os.WriteFile(filepath.Join(repo, "hello"), []byte("#!/bin/sh\necho hello $*\n"), 0o755),
		os.Symlink("/etc", filepath.Join(repo, "outside")),
		os.Symlink("sub", filepath.Join(repo, "inside")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// TestFrontSlack: corral-front has the timer slack in every thread while it waits for requests.
func TestFrontSlack(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // to read the slack of another process
	cmd := command(t, "mcp", "--repo", repository(t))
	requests, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd)
	slack := func() (list []string) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Process.Pid))
		for _, thread := range threads {
			b, _ := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
			list = append(list, strings.TrimSpace(string(b)))
		}
		return list
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "it is corral-front", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Process.Pid))
		return string(b) == "corral-front\n" && len(slack()) > 1
	})
	for _, s := range slack() {
		if s != strconv.Itoa(frontSlack) {
			t.Errorf("%q, want %d", slack(), frontSlack)
			break
		}
	}
	requests.Close()
	p.ends(t)
}
