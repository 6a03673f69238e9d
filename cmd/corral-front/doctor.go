package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/front/doctor"
	"corral/internal/config"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/policy/runtimes"
)

const doctorHelp = `corral doctor finds out what this host can enforce: it runs jobs that try what they should not be able to do.

Usage: corral doctor [--runtimes] [--json] [--supervisor SOCKET]

  --runtimes            find out instead which languages' programs are here, and how long each takes to start in a job
  --json                print one JSON object
  --supervisor SOCKET   examine the supervisor there (default ` + client.DefaultSocket + `; root starts one of its own)

Exit code: 0 protected; 1 degraded: jobs are isolated, and something should be mended; 2 jobs cannot be isolated. Of
--runtimes: 0 unless a program that is here does not run (1), or none does (2).
`

func doctorCommand(args []string) (int, error) {
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "")
	socket := f.String("supervisor", "", "")
	runtimes := f.Bool("runtimes", false, "")
	if ended, code, err := parseFlags(f, args, doctorHelp); ended {
		return code, err
	}
	if f.NArg() > 0 {
		return failure, fmt.Errorf("unexpected argument %q\nhint: corral doctor --help", f.Arg(0))
	}
	var settings *config.Front
	var unopened error
	if *runtimes {
		settings, unopened = config.OpenFront(config.FrontSources(os.Getenv, "")...) // as root, if this is root
	}
	subject, finish := subjectOf(*socket)
	// Whatever came of it, a root that could not be given up is the end.
	if err := dropRoot(); err != nil {
		finish()
		return failure, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if *runtimes {
		report, err := examineRuntimes(ctx, subject, settings, unopened)
		finish()
		if err = errors.Join(err, subject.Place.Remove()); err != nil {
			return failure, err
		}
		return report.ExitCode(), writeRuntimes(report, *asJSON)
	}
	report := doctor.Examine(ctx, subject)
	finish()
	if err := errors.Join(subject.Place.Remove(), write(report, *asJSON)); err != nil {
		return failure, err
	}
	return report.ExitCode(), nil
}

// examineRuntimes takes the toolchains that the configuration names, and suggests those of the user's that it does not.
func examineRuntimes(ctx context.Context, s doctor.Subject, settings *config.Front, err error) (doctor.Runtimes, error) {
	if err != nil {
		return doctor.Runtimes{}, err
	}
	defer settings.Close() //nolint:errcheck // it was read
	c, err := settings.Load()
	if err != nil {
		return doctor.Runtimes{}, err
	}
	var others []string
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		others = slices.DeleteFunc(runtimes.Toolchains(u.HomeDir, nil), func(dir string) bool {
			return slices.ContainsFunc(c.Toolchains, func(t string) bool { return t == dir || strings.HasPrefix(dir, t+"/") })
		})
	}
	installed := runtimes.Find(runtimes.Places{Toolchains: c.Toolchains, Never: []string{s.Place.Repo()}})
	return doctor.ExamineRuntimes(ctx, s, installed, others), nil
}

func writeRuntimes(r doctor.Runtimes, asJSON bool) error {
	if asJSON {
		return r.WriteJSON(os.Stdout)
	}
	return r.WriteText(os.Stdout)
}

func write(r doctor.Report, asJSON bool) error {
	if asJSON {
		return r.WriteJSON(os.Stdout)
	}
	_, err := unix.IoctlGetTermios(1, unix.TCGETS)
	// https://no-color.org
	return r.WriteText(os.Stdout, err == nil && os.Getenv("NO_COLOR") == "")
}

// subjectOf finds or starts a supervisor, and makes a place for its jobs. The function it returns ends what was started.
func subjectOf(socket string) (doctor.Subject, func()) {
	if os.Geteuid() == 0 && socket == "" {
		return embedded()
	}
	if err := dropRoot(); err != nil { // a user's supervisor is asked as a user
		return doctor.Subject{Err: err}, func() {}
	}
	c, err := client.Dial(socket)
	if err != nil {
		return doctor.Subject{Err: hinted(err, socket)}, func() {}
	}
	// Kernels before 6.3 cannot map ids on a tmpfs, which /tmp may be.
	parents := []string{"/var/tmp", os.TempDir()}
	if home, err := os.UserHomeDir(); err == nil {
		parents = append(parents, home)
	}
	place, err := doctor.MakePlace(parents...)
	if err != nil {
		_ = c.Close()
		return doctor.Subject{Err: err}, func() {}
	}
	return doctor.Subject{Supervisor: c, Place: place}, func() { _ = c.Close() }
}

func hinted(err error, socket string) error {
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w\nhint: add the user to group corral, or run with sudo", err)
	case socket == "":
		return fmt.Errorf("%w\nhint: start corrald as a service, or run with sudo", err)
	}
	return fmt.Errorf("%w\nhint: start corrald with --socket %s", err, socket)
}

// embedded starts a supervisor for a place that root makes, and that is given to who this process becomes: below sticky
// directories, where its owner can remove it.
func embedded() (doctor.Subject, func()) {
	place, err := doctor.MakePlace("/var/tmp", "/tmp")
	if err != nil {
		return doctor.Subject{Err: err}, func() {}
	}
	var c *client.Client
	finish := func() {}
	exe, err := os.Executable()
	if err == nil {
		c, finish, err = embed.Start(embed.Options{
			Program: filepath.Join(filepath.Dir(exe), "corrald"),
			Repos:   []string{place.Repo()},
			Prepare: func(who embed.Identity) error { return place.Give(who.UID, who.GID) },
		})
	}
	if err != nil {
		return doctor.Subject{Err: errors.Join(err, place.Remove())}, func() {}
	}
	return doctor.Subject{Supervisor: c, Place: place}, finish
}
