package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

const rootfsHelp = `corral rootfs is about root file systems: what sessions can have in place of the host's system directories.

Usage:
  sudo corral rootfs import NAME SOURCE [OPTIONS]   make one, under a name that is free
  corral rootfs list [--supervisor SOCKET]          list those that there are
  sudo corral rootfs remove NAME                    remove one; sessions that began with it keep it

SOURCE is a directory, a tar archive, what docker save writes, or an OCI image layout as a directory or an archive.
Archives may be compressed with gzip or zstd; "-" is one on standard input. It is read with the rights of who called sudo,
and unpacked in a jail.

  --ref NAME            of several images, the one with this name or tag
  --disk SIZE           how large it may be (default: what a session's layer may be, 4GiB)
  --inodes N            how many files it may have (default: 500000)
  --supervisor SOCKET   have the supervisor there keep it (root without this option starts one of its own)

Devices, pipes and sockets are left out; owners, set-id bits and file capabilities are dropped: a job is one user.
`

// A rootfsOptions is the command line of corral rootfs.
type rootfsOptions struct {
	ref, supervisor string
	disk, inodes    int64
}

func rootfsCommand(args []string) (int, error) {
	var o rootfsOptions
	f := flag.NewFlagSet("rootfs", flag.ContinueOnError)
	f.StringVar(&o.ref, "ref", "", "")
	f.StringVar(&o.supervisor, "supervisor", "", "")
	f.Func("disk", "", func(s string) (err error) { o.disk, err = job.ParseSize(s); return err })
	f.Func("inodes", "", func(s string) (err error) { o.inodes, err = job.ParseCount(s); return err })
	words, ended, code, err := parseMixed(f, args, rootfsHelp)
	if ended {
		return code, err
	}
	verb := strings.Join(words[:min(1, len(words))], "")
	imports := o.ref != "" || o.disk+o.inodes > 0
	switch {
	case verb == "import" && len(words) == 3:
		i := &importer{name: words[1], source: words[2], options: o}
		return o.with(words[1], i.connect, i.run)
	case verb == "list" && len(words) == 1 && !imports:
		return o.with("", nil, func(ctx context.Context, c *client.Client) error { return listImages(ctx, c) })
	case verb == "remove" && len(words) == 2 && !imports:
		return o.with(words[1], nil, func(ctx context.Context, c *client.Client) error {
			if err := c.RemoveImage(ctx, words[1]); err != nil {
				return err
			}
			_, err := say("root file system " + words[1] + " is removed\n")
			return err
		})
	}
	if err := dropRoot(); err != nil {
		return failure, err
	}
	return failure, errors.New("what is to be done, with which one?\nhint: corral rootfs --help")
}

// with calls f with a supervisor, until a signal. A name is of one that f makes or removes, which is root's to do. Root is
// given up before f. What prepare makes belongs to whom the supervisor knows as its client.
func (o *rootfsOptions) with(name string, prepare func() error, f func(context.Context, *client.Client) error) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := o.check(name); err != nil {
		return failure, errors.Join(err, dropRoot())
	}
	s, err := o.connect(name != "")
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err = errors.Join(err, dropRoot()); err != nil {
		return failure, err
	}
	defer s.Close()
	c, err := s.current()
	if err == nil {
		err = f(ctx, c)
	}
	if err != nil {
		return failure, err
	}
	return 0, nil
}

func (o *rootfsOptions) check(name string) error {
	if name == "" {
		return nil
	}
	if err := job.CheckImageName(name); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("only root imports and removes root file systems\nhint: run it with sudo")
	}
	return nil
}

// connect is root's still: a daemon is to know who asks. An embedded supervisor is told whether something is to be made or
// removed.
func (o *rootfsOptions) connect(changes bool) (*supervisor, error) {
	if os.Geteuid() == 0 && o.supervisor == "" {
		return startSupervisor(embed.Options{Images: changes})
	}
	return dialed(o.supervisor)
}

func listImages(ctx context.Context, images job.Images) error {
	list, err := images.ListImages(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		note("there is no root file system: sudo corral rootfs import NAME SOURCE")
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tMADE")
	for _, i := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", text.Quote(i.Name), about(i.Bytes), i.Made.Format(time.DateTime))
	}
	return w.Flush()
}

// about is a size for people.
func about(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for size >= 1000 && unit < 4 {
		size, unit = size/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGTP"[unit])
}
