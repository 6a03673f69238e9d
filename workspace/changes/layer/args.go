package layer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"corral/job"
	"corral/workspace/changes/stream"
)

// MaxPaths is the maximum number of paths of one run.
const MaxPaths = 1000

// Run executes the command line and writes the stream to out. args does not include the program's name:
//
//	list|diff|newer|apply|refresh|revert [-layer DIR] [-opened NANOSECONDS] [-dry-run] [-digest] [-expect DIGEST] [-most N] [-contents BYTES]
//	                [-time DURATION] REPOSITORY [PATH]...
//
// The layer is at [job.LayerDir] unless -layer gives another directory. -opened is the time when the session was
// opened, since 1970, see [Apply]; list and diff need none. Paths are relative to the repository.
func Run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("missing command: " + commands)
	}
	var o Options
	var opened int64
	var dry bool
	var expect stream.Digest
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Layer, "layer", job.LayerDir, "")
	f.Int64Var(&opened, "opened", 0, "")
	f.BoolVar(&dry, "dry-run", false, "")
	f.BoolVar(&o.Digest, "digest", false, "")
	f.Func("expect", "", func(s string) (err error) {
		expect, err = stream.ParseDigest(s)
		return err
	})
	f.IntVar(&o.Bounds.List, "most", 0, "")
	f.Int64Var(&o.Bounds.Contents, "contents", 0, "")
	f.DurationVar(&o.Bounds.Time, "time", 0, "")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("missing argument: the repository")
	}
	o.Repo = f.Arg(0)
	var err error
	if o.Paths, err = CleanPaths(f.Args()[1:]); err != nil {
		return err
	}
	w, at := stream.NewWriter(out), time.Unix(0, opened)
	switch {
	case args[0] == "list":
		return List(ctx, o, w)
	case args[0] == "diff":
		return Diff(ctx, o, w)
	case opened <= 0:
		return errors.New("missing -opened: the time when the session was opened")
	case args[0] == "newer":
		return Newer(ctx, o, at, w)
	case args[0] == "apply":
		return Apply(ctx, o, at, expect, dry, w)
	case args[0] == "refresh":
		return Refresh(ctx, o, at, w)
	case args[0] == "revert":
		return Revert(ctx, o, at, w)
	}
	return fmt.Errorf("unknown command %q: must be %s", args[0], commands)
}

const commands = "list, diff, newer, apply, refresh or revert"

// CleanPaths converts names given by a user to Paths of [Options]: clean, and none below another one. nil stands for
// everything.
func CleanPaths(names []string) ([]string, error) {
	if len(names) > MaxPaths {
		return nil, fmt.Errorf("%d paths, above the maximum of %d", len(names), MaxPaths)
	}
	var paths []string
	for _, n := range names {
		p := path.Clean(n)
		if n == "" || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || strings.IndexByte(p, 0) >= 0 {
			return nil, fmt.Errorf("%q is not a path in the repository", n)
		}
		if p == "." {
			return nil, nil // everything
		}
		paths = append(paths, p)
	}
	slices.Sort(paths)
	// A path below another need not directly follow it: "a", "a-b", "a/b".
	return slices.DeleteFunc(slices.Compact(paths), func(p string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(p, path.Clean(n)+"/") })
	}), nil
}
