package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

// rootfsHelp is the help text of the command.
const rootfsHelp = `corral rootfs manages root file systems, which sessions can have in place of the host's system directories.

Usage:
  sudo corral rootfs import NAME SOURCE [OPTIONS]   import SOURCE under a new name
  corral rootfs list [--supervisor SOCKET]          list all root file systems
  sudo corral rootfs remove NAME                    remove one; sessions that started from it keep it

SOURCE is a directory, a tar archive, the output of docker save, or an OCI image layout as a directory or an archive.
Archives may be compressed with gzip or zstd; "-" reads an archive from standard input. SOURCE is read with the rights of
the user who called sudo, and unpacked in a jail.

  --ref NAME            of several images, import the one with this name or tag
  --disk SIZE           maximum size (default: that of a session's layer, 4GiB)
  --inodes N            maximum number of files (default: 500000)
  --supervisor SOCKET   use the supervisor on this socket (without this option, root starts its own)

Devices, pipes and sockets are not imported; owners, set-id bits and file capabilities are dropped: a job is one user.
`

// rootfsOptions is the command line of corral rootfs.
type rootfsOptions struct {
	ref, supervisor string
	disk, inodes    int64
}

// rootfsCommand is `corral rootfs`, which imports, lists and removes root file systems for sessions.
func rootfsCommand(args []string) error {
	var o rootfsOptions
	f := flag.NewFlagSet("rootfs", flag.ContinueOnError)
	f.StringVar(&o.ref, "ref", "", "")
	f.StringVar(&o.supervisor, "supervisor", "", "")
	f.Func("disk", "", func(s string) (err error) { o.disk, err = job.ParseSize(s); return err })
	f.Func("inodes", "", func(s string) (err error) { o.inodes, err = job.ParseCount(s); return err })
	words, err := cli.ParseMixed(f, args, rootfsHelp)
	if err != nil {
		return err
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
			return cli.Print("removed the root file system " + words[1] + "\n")
		})
	}
	return cli.Misused("rootfs", rootfsHelp, words)
}

// with calls f with a supervisor; a signal ends ctx. A name is given if f creates or removes that root file system,
// which requires root. Root is dropped before f. prepare runs before that, as the user that the supervisor identifies
// as its client.
func (o *rootfsOptions) with(name string, prepare func() error, f func(context.Context, *client.Client) error) error {
	ctx, stop := cli.UntilStopped()
	defer stop()
	if err := o.check(name); err != nil {
		return err
	}
	s, err := o.connect(name != "")
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err = errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	defer s.Close()
	c, err := s.Client()
	if err == nil {
		err = f(ctx, c)
	}
	return err
}

func (o *rootfsOptions) check(name string) error {
	if name == "" {
		return nil
	}
	if err := job.CheckImageName(name); err != nil {
		return err
	}
	if !embed.Root() {
		return errors.New("only root can import and remove root file systems\nhint: run it with sudo")
	}
	return nil
}

// connect runs before root is dropped: a service identifies its client. changes tells an embedded supervisor that root
// file systems will be created or removed.
func (o *rootfsOptions) connect(changes bool) (*supervisor.Connection, error) {
	if embed.Root() && o.supervisor == "" {
		return supervisor.Start(embed.Options{Images: changes})
	}
	return supervisor.Connect(o.supervisor)
}

func listImages(ctx context.Context, images job.Images) error {
	list, err := images.ListImages(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		cli.Note("there is no root file system: import one with sudo corral rootfs import NAME SOURCE")
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tMADE")
	for _, i := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", text.Quote(i.Name), cli.FormatBytes(i.Bytes), i.Made.Format(time.DateTime))
	}
	return w.Flush()
}
