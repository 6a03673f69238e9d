package commands

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/directory"
	"corral/internal/pipe"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/workspace/image"
	"corral/workspace/image/unpack"
)

// imageClient is the part of a supervisor that an import uses.
type imageClient interface {
	job.Sessions
	job.Images
	job.Runner
}

// An importer creates a root file system. It opens a session and runs a job that unpacks the source into the session's
// layer; when the session is closed, the layer becomes the root file system.
type importer struct {
	host    imageClient
	name    string
	source  string
	options rootfsOptions
	pipes   [3]importPipe // the unpacker's standard streams
}

// A importPipe is one of a job's standard streams.
type importPipe struct{ r, w *os.File }

// connect creates the pipes. The supervisor requires that they belong to its client, which is root; the source is read
// after root is dropped.
func (i *importer) connect() (err error) {
	return embed.Piping.Do(func() (err error) {
		for n := range i.pipes {
			if i.pipes[n].r, i.pipes[n].w, err = os.Pipe(); err != nil {
				return err
			}
		}
		return nil
	})
}

// disconnect closes the pipes that no job has taken over.
func (i *importer) disconnect() {
	for _, p := range i.pipes {
		_, _ = p.r.Close(), p.w.Close()
	}
}

// maxUnpackerOutput bounds how much of the unpacker's output is used, in bytes: a line, or an error with two names.
const maxUnpackerOutput = 16 << 10

// closeTimeout is the timeout for a session to close when its import failed.
const closeTimeout = time.Minute

func (i *importer) run(ctx context.Context, c *client.Client) error {
	i.host = c
	return i.make(ctx)
}

func (i *importer) make(ctx context.Context) (err error) {
	defer i.disconnect()
	if err := i.checkEarly(ctx); err != nil {
		return err
	}
	s, err := i.host.OpenSession(ctx, job.SessionSpec{Import: i.name, Disk: i.options.disk, Inodes: i.options.inodes})
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			_, closed := i.host.CloseSession(ending, s.ID, false)
			err = errors.Join(err, closed)
		}
	}()
	sum, err := i.fill(ctx, s)
	if err != nil {
		return err
	}
	if kept, err = i.host.CloseSession(ctx, s.ID, true); err != nil {
		return err
	}
	if !kept {
		return fmt.Errorf("the supervisor did not keep %s", i.name)
	}
	return i.report(sum)
}

// checkEarly returns errors that would otherwise occur late: the name is in use, or the source cannot be read.
func (i *importer) checkEarly(ctx context.Context) error {
	list, err := i.host.ListImages(ctx)
	if err != nil {
		return err
	}
	for _, image := range list {
		if image.Name == i.name {
			return fmt.Errorf("the root file system %s already exists\nhint: corral rootfs remove %s", i.name, i.name)
		}
	}
	if i.source == "-" {
		return nil
	}
	info, err := os.Stat(i.source)
	if err != nil {
		return i.unreadable(err)
	}
	if !info.IsDir() {
		return nil
	}
	path, err := directory.Absolute(i.source)
	if err != nil {
		return err
	}
	dir, err := directory.Open(path)
	if errors.As(err, new(*directory.LinkError)) {
		return fmt.Errorf("%w\nhint: %s", err, directory.LinkHint)
	}
	if err != nil {
		return i.unreadable(err)
	}
	return dir.Close()
}

// unreadable adds to a permission error which user lacks the permission.
func (i *importer) unreadable(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w\nhint: it is read as user %d; as root, pass it through a pipe: corral rootfs import %s - <FILE",
			err, os.Getuid(), i.name)
	}
	return err
}

func (i *importer) open(s job.Session) (*image.Source, error) {
	o := image.Options{Ref: i.options.ref, Limits: image.Limits{
		Entries: min(cmp.Or(i.options.inodes, job.DefaultLayerInodes), unpack.MaxEntries), Bytes: s.Disk,
	}}
	if i.source == "-" {
		return image.OpenFile(os.Stdin, o)
	}
	source, err := image.Open(i.source, o)
	if err != nil {
		return nil, i.unreadable(err)
	}
	return source, nil
}

// fill fills the layer of a session.
func (i *importer) fill(ctx context.Context, s job.Session) (image.Summary, error) {
	source, err := i.open(s)
	if err != nil {
		return image.Summary{}, fmt.Errorf("%s: %w", text.Quote(i.source), err)
	}
	defer source.Close() //nolint:errcheck // it was read
	feed := i.start(ctx, job.Spec{
		Session: s.ID, Tool: job.ToolUnpack, Args: []string{string(job.ToolUnpack), "."},
		Claim: job.Claim{Tool: "rootfs_import"},
	})
	out := bufio.NewWriterSize(feed.stdin, 256<<10)
	sum, writing := source.Write(out)
	if writing == nil {
		writing = out.Flush()
	}
	totals, unpacking := feed.wait() // the unpacker refuses an incomplete archive
	switch {
	case ctx.Err() != nil:
		return sum, errors.New("interrupted")
	case writing != nil && !errors.Is(writing, unix.EPIPE):
		return sum, fmt.Errorf("%s, a %s: %w", text.Quote(i.source), source.Kind(), writing)
	case unpacking != nil:
		return sum, unpacking
	case writing != nil:
		return sum, writing
	case totals != sum.Totals:
		return sum, fmt.Errorf("the unpacker reports another count than was sent: %s, not %s", totals, sum.Totals)
	}
	return sum, nil
}

// A imageFeed is the job that unpacks what is written to its standard input.
type imageFeed struct {
	stdin          io.WriteCloser
	stdout, stderr <-chan string
	ended          chan error
	result         job.Result
}

// start starts a job that reads from feed.stdin.
func (i *importer) start(ctx context.Context, spec job.Spec) *imageFeed {
	in, out, errs := i.pipes[0], i.pipes[1], i.pipes[2]
	f := &imageFeed{
		stdin: in.w, ended: make(chan error, 1),
		stdout: pipe.Head(out.r, maxUnpackerOutput), stderr: pipe.Head(errs.r, maxUnpackerOutput),
	}
	go func() {
		var err error
		f.result, err = i.host.Run(ctx, spec, job.Stdio{Stdin: in.r, Stdout: out.w, Stderr: errs.w})
		f.ended <- err
	}()
	return f
}

// wait closes the job's input and waits for the job to end.
func (f *imageFeed) wait() (unpack.Totals, error) {
	closed := f.stdin.Close()
	err := <-f.ended
	said, why := <-f.stdout, <-f.stderr
	if err := errors.Join(err, closed); err != nil {
		return unpack.Totals{}, err
	}
	if f.result.Status != job.Success {
		return unpack.Totals{}, unpackFailure(&f.result, why)
	}
	return unpack.ParseTotals(strings.TrimSuffix(said, "\n"))
}

// unpackFailure returns why unpacking failed, in the unpacker's words, which may quote the archive.
func unpackFailure(r *job.Result, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, "corral-layer: "))
	switch {
	case why != "":
		return errors.New("unpacking: " + text.Line(why, 1000))
	case r.Limit == job.LimitDisk || r.Limit == job.LimitFiles:
		return fmt.Errorf("unpacking: too large (limit: %s)\nhint: raise the limit with --disk or --inodes", r.Limit)
	case r.Limit != "":
		return fmt.Errorf("unpacking reached the limit of %s", r.Limit)
	}
	return fmt.Errorf("unpacking ended with status %s, signal %d", r.Status, r.Signal)
}

// report prints what was imported, and what was not.
func (i *importer) report(sum image.Summary) error {
	for _, left := range []struct {
		count int64
		what  string
		names []string
	}{
		{sum.Unreadable.Count, fmt.Sprintf("left out, because user %d may not read them", os.Getuid()), sum.Unreadable.First},
		{sum.Mounts.Count, "left empty, because something else is mounted there", sum.Mounts.First},
		{sum.Devices, "left out: devices, pipes and sockets", nil},
		{sum.SetID, "imported without their set-id bits", nil},
	} {
		if left.count == 0 {
			continue
		}
		for n, name := range left.names {
			left.names[n] = text.Quote(name)
		}
		text := fmt.Sprintf("%d %s", left.count, left.what)
		if len(left.names) > 0 {
			text += ": " + strings.Join(left.names, ", ")
		}
		if left.count > int64(len(left.names)) && len(left.names) > 0 {
			text += ", …"
		}
		cli.Note(text)
	}
	if sum.Unreadable.Count > 0 {
		fmt.Fprintf(os.Stderr, "hint: to import everything, remove it and let root read: sudo tar -C %s -c . | sudo corral rootfs import %s -\n",
			text.Quote(i.source), i.name)
	}
	return cli.Print(fmt.Sprintf("root file system %s: %d files, %d directories, %d links, %s\n",
		i.name, sum.Files, sum.Directories, sum.Symlinks+sum.Links, cli.FormatBytes(sum.Bytes)))
}
