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

	"corral/changes/stream"
	"corral/job"
)

// MaxPaths is how many paths one run can be about.
const MaxPaths = 1000

// Run does what the command line says and writes the stream to out. args are without the program's name:
//
//	list|diff|apply [-layer DIR] [-opened NANOSECONDS] [-dry-run] [-digest] [-expect DIGEST] [-most N] [-contents BYTES]
//	                [-time DURATION] REPOSITORY [PATH]...
//
// The layer is at [job.LayerDir] unless it is said to be elsewhere. The time is that of the session's opening, since 1970, see [Apply].
// Paths are relative to the repository.
func Run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("list, diff or apply is wanted")
	}
	var o Options
	var opened int64
	var dry bool
	var expect stream.Digest
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.Upper, "layer", job.LayerDir, "")
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
		return errors.New("of which repository?")
	}
	o.Repo = f.Arg(0)
	var err error
	if o.Paths, err = CleanPaths(f.Args()[1:]); err != nil {
		return err
	}
	w := stream.NewWriter(out)
	switch args[0] {
	case "list":
		return List(ctx, o, w)
	case "diff":
		return Diff(ctx, o, w)
	case "apply":
		if opened <= 0 {
			return errors.New("when was the session opened?")
		}
		return Apply(ctx, o, time.Unix(0, opened), expect, dry, w)
	}
	return fmt.Errorf("%q: list, diff or apply is wanted", args[0])
}

// CleanPaths makes of what a person names the Paths of [Options]: each clean, none below another one.
func CleanPaths(names []string) ([]string, error) {
	if len(names) > MaxPaths {
		return nil, fmt.Errorf("%d paths: at most %d are possible", len(names), MaxPaths)
	}
	var paths []string
	for _, n := range names {
		p := path.Clean(n)
		if n == "" || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || strings.IndexByte(p, 0) >= 0 {
			return nil, fmt.Errorf("%q is no path in the repository", n)
		}
		if p == "." {
			return nil, nil // everything
		}
		paths = append(paths, p)
	}
	slices.Sort(paths)
	// What is below a path need not follow it: "a", "a-b", "a/b".
	return slices.DeleteFunc(slices.Compact(paths), func(p string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(p, path.Clean(n)+"/") })
	}), nil
}
