package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// build builds the test binaries of packages, with the race detector or without, and calls built for each.
func (r *runner) build(ctx context.Context, list []testPackage, race bool, built func(testPackage)) error {
	if len(list) == 0 {
		return nil
	}
	for _, dir := range []string{"bin", "race"} {
		if err := os.MkdirAll(filepath.Join(r.cache, dir), 0o755); err != nil {
			return err
		}
	}
	// `go test -c` builds many packages at once, but names a binary by the last element of its path. Packages with the
	// same name are built in separate runs.
	for len(list) > 0 {
		var now []testPackage
		now, list = distinct(list)
		if err := r.buildOnce(ctx, now, race); err != nil {
			return err
		}
		for _, p := range now {
			built(p)
		}
	}
	return nil
}

// distinct divides packages into some whose paths end in different names, and the others.
func distinct(list []testPackage) (now, later []testPackage) {
	names := map[string]bool{}
	for _, p := range list {
		if name := filepath.Base(p.path); names[name] {
			later = append(later, p)
		} else {
			names[name] = true
			now = append(now, p)
		}
	}
	return now, later
}

// buildOnce builds the test binaries of packages whose paths end in different names.
func (r *runner) buildOnce(ctx context.Context, list []testPackage, race bool) error {
	temp, err := os.MkdirTemp(r.cache, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // it is in the cache
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", temp + "/"}, buildFlags()...)
	if race {
		args = append(args, raceFlags()...)
	}
	if r.cover != "" {
		args = append(args, "-cover", "-covermode=atomic", "-coverpkg=./...") // tests of one package run code of others
	}
	for _, p := range list {
		args = append(args, p.path)
	}
	cmd := r.command(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", compilerGOGC)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	for _, p := range list {
		if err := os.Rename(filepath.Join(temp, filepath.Base(p.path)+".test"), r.binary(p, race)); err != nil {
			return err
		}
	}
	return nil
}

// binary returns the path of a package's test binary. Those with the race detector are not where the guest looks.
func (r *runner) binary(p testPackage, race bool) string {
	if race {
		return filepath.Join(r.cache, "race", p.binary())
	}
	return filepath.Join(r.cache, "bin", p.binary())
}
