package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// makeCoverDir makes the directory to which all test processes and their children, also those of other users, write their coverage
// (GOCOVERDIR).
func makeCoverDir() (dir string, err error) {
	dir, err = os.MkdirTemp("/var/tmp", "corral-coverage-")
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	return dir, err
}

// writeProfile writes what is in a directory of makeCoverDir to a file for `go tool cover`, and the coverage of each package to out.
func writeProfile(ctx context.Context, dir, file string, out io.Writer) error {
	if err := removeCut(dir); err != nil {
		return err
	}
	if _, err := covdata(ctx, "textfmt", "-i="+dir, "-o="+file); err != nil {
		return err
	}
	share, err := covdata(ctx, "percent", "-i="+dir)
	if err == nil {
		_, err = fmt.Fprintf(out, "\ncoverage:\n%s", share)
	}
	return err
}

// covdata runs a command of covdata and returns what it prints. `go tool` would build it with other flags, and so compile what it
// imports once more.
func covdata(ctx context.Context, args ...string) ([]byte, error) {
	run := slices.Concat([]string{"run"}, compileFlags(), []string{"cmd/covdata"}, args)
	text, err := exec.CommandContext(ctx, "go", run...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("covdata %s: %w\n%s", args[0], err, text)
	}
	return text, nil
}

// removeCut removes files of processes that were killed while they wrote them, which covdata does not pass over. A complete one has a
// footer of this size that begins as the file does (internal/coverage/defs.go in Go).
func removeCut(dir string) error {
	const footer = 16
	files, err := filepath.Glob(filepath.Join(dir, "covcounters.*"))
	for _, file := range files {
		b, readErr := os.ReadFile(file)
		if n := len(b); readErr == nil && (n < 2*footer || !bytes.Equal(b[n-footer:n-footer+4], b[:4])) {
			readErr = os.Remove(file)
		}
		err = errors.Join(err, readErr)
	}
	return err
}
