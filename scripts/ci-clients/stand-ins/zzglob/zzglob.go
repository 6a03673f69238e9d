// Package zzglob stands for the patterns by which Buildkite's agent finds artifacts, and decides about steps and caches. It
// has the patterns of path/filepath: "*" does not match "/", and there is no "**".
package zzglob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A Pattern matches paths.
type Pattern struct{ text string }

// Options of patterns and searches. They do nothing: "~" is never expanded, and links are not followed.
type (
	ParseOption struct{}
	GlobOption  struct{}
)

func ExpandTilde(bool) ParseOption         { return ParseOption{} }
func TraverseSymlinks(bool) GlobOption     { return GlobOption{} }
func WalkIntermediateDirs(bool) GlobOption { return GlobOption{} }

// Parse checks a pattern.
func Parse(text string, _ ...ParseOption) (*Pattern, error) {
	_, err := filepath.Match(text, "")
	return &Pattern{text}, err
}

// Match tells whether the pattern matches a path.
func (p *Pattern) Match(path string) bool {
	ok, err := filepath.Match(p.text, path)
	return ok && err == nil
}

// Glob calls f for each file that the pattern matches.
func (p *Pattern) Glob(f fs.WalkDirFunc, _ ...GlobOption) error {
	found, err := filepath.Glob(p.text)
	for _, path := range found {
		info, statErr := os.Lstat(path)
		if statErr != nil {
			err = errors.Join(err, f(path, nil, statErr))
			continue
		}
		err = errors.Join(err, f(path, fs.FileInfoToDirEntry(info), nil))
	}
	return err
}

// MultiGlob calls f for each file that a pattern matches.
func MultiGlob(ctx context.Context, patterns []*Pattern, f fs.WalkDirFunc, _ ...GlobOption) error {
	for _, p := range patterns {
		if err := errors.Join(ctx.Err(), p.Glob(f)); err != nil {
			return err
		}
	}
	return nil
}
