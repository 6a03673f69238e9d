package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"

	"corral/front/cli"
	"corral/front/doctor"
	"corral/front/server"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/policy/runtimes"
)

// doctorHelp is the help text of the command.
const doctorHelp = `corral doctor reports what this host can enforce: it runs jobs that try what they must not be able to do.

Usage: corral doctor [--runtimes] [--json] [--supervisor SOCKET] [--state DIR]
       corral doctor --agents [--write] [--json]

  --runtimes            report instead which languages are installed, and how long each takes to start in a job
  --agents              report instead which coding agents you have, what of each runs in jails, and the lines that its settings need
  --write               with --agents: add these lines to your settings, where nothing else changes
  --json                print one JSON object
  --supervisor SOCKET   examine the supervisor on this socket (default ` + client.DefaultSocket + `; root starts its own)
  --state DIR           the state directory of that supervisor (default ` + doctor.DefaultState + `)

Exit code: 0 protected; 1 degraded: jobs are isolated, but something should be fixed; 2 jobs cannot be isolated, or that
is not known, because the supervisor serves doctor no directory. With --runtimes: 0 if all installed languages run; 1 if
one does not; 2 if none does. With --agents: 0; 1 if settings of an installed agent lack lines.
`

// doctorCommand is `corral doctor`, which reports what the host can enforce.
func doctorCommand(args []string) error {
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "")
	socket := f.String("supervisor", "", "")
	runtimes := f.Bool("runtimes", false, "")
	state := f.String("state", "", "")
	agents := f.Bool("agents", false, "")
	write := f.Bool("write", false, "")
	if err := cli.ParseFlags(f, args, doctorHelp); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q\nhint: corral doctor --help", f.Arg(0))
	}
	switch {
	case *write && !*agents:
		return errors.New("--write is for --agents")
	case *agents && (*runtimes || *socket != "" || *state != ""):
		return errors.New("--agents cannot be combined with --runtimes, --supervisor and --state")
	case *agents:
		return examineAgents(*write, *asJSON)
	}
	var files *config.Front
	var unopened error
	if *runtimes {
		files, unopened = config.OpenFront(server.ConfigSources("")...) // before root is dropped
	}
	subject, finish := subjectOf(*socket)
	// Failing to drop root is an error, whatever the result.
	if err := embed.Drop(); err != nil {
		return errors.Join(err, finish())
	}
	ctx, stop := cli.UntilStopped()
	defer stop()
	if *runtimes {
		report, err := examineRuntimes(ctx, subject, files, unopened)
		if err = errors.Join(err, finish()); err != nil {
			return err
		}
		return cli.Exit(report.ExitCode(), writeRuntimes(report, *asJSON))
	}
	subject.State = *state
	report := doctor.Examine(ctx, subject)
	if err := errors.Join(finish(), writeReport(report, *asJSON)); err != nil {
		return err
	}
	return cli.Exit(report.ExitCode(), nil)
}

// examineAgents reports on the agents of the user, and changes their settings with that user's rights alone.
func examineAgents(write, asJSON bool) error {
	if err := embed.Drop(); err != nil {
		return err
	}
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return err
	}
	shell, err := exec.LookPath("corral-shell")
	if err != nil {
		shell = "/usr/local/bin/corral-shell"
	}
	list := doctor.ExamineAgents(u.HomeDir, os.Getenv("PATH"), shell, write)
	code := 0
	if slices.ContainsFunc(list, func(a doctor.Agent) bool { return a.File != "" && !a.Set }) {
		code = 1
	}
	if asJSON {
		return cli.Exit(code, text.WriteJSON(os.Stdout, map[string]any{"agents": list}, "  "))
	}
	return cli.Exit(code, doctor.WriteAgents(os.Stdout, list))
}

// examineRuntimes examines the configured toolchains, and suggests those in the user's home directory that are not
// configured.
func examineRuntimes(ctx context.Context, s doctor.Subject, files *config.Front, err error) (doctor.Runtimes, error) {
	if err != nil {
		return doctor.Runtimes{}, err
	}
	defer files.Close() //nolint:errcheck // it was read
	c, err := files.Load()
	if err != nil {
		return doctor.Runtimes{}, err
	}
	var others []string
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		found := slices.Concat(runtimes.Toolchains(u.HomeDir, nil), runtimes.ModuleCaches(u.HomeDir))
		others = slices.DeleteFunc(found, func(dir string) bool {
			return slices.ContainsFunc(c.Toolchains, func(t string) bool { return directory.Within(dir, t) })
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

func writeReport(r doctor.Report, asJSON bool) error {
	if asJSON {
		return r.WriteJSON(os.Stdout)
	}
	// https://no-color.org
	return r.WriteText(os.Stdout, cli.IsTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "")
}

// subjectOf connects to a supervisor or starts one, and makes a directory for its jobs. The returned function ends the
// connection and the supervisor, and removes the directory.
func subjectOf(socket string) (doctor.Subject, func() error) {
	if embed.Root() && socket == "" {
		return embeddedSubject()
	}
	c, err := supervisor.DialAsUser(socket)
	if err = errors.Join(err, embed.Drop()); err != nil {
		return doctor.Subject{Err: err}, closeNothing
	}
	// Kernels before 6.3 cannot map ids on a tmpfs, which /tmp may be.
	parents := []string{"/var/tmp", os.TempDir()}
	if home, err := os.UserHomeDir(); err == nil {
		parents = append(parents, home)
	}
	place, err := doctor.MakePlace(parents...)
	if err != nil {
		_ = c.Close()
		return doctor.Subject{Err: err}, closeNothing
	}
	return doctor.Subject{Supervisor: c, Place: place}, func() error {
		_ = c.Close()
		return place.Remove()
	}
}

func closeNothing() error { return nil }

// embeddedSubject starts a supervisor for a directory that root makes and gives to the user that this process becomes. It lies
// below a sticky directory, where its owner can remove it.
func embeddedSubject() (doctor.Subject, func() error) {
	place, err := doctor.MakePlace("/var/tmp", "/tmp")
	if err != nil {
		return doctor.Subject{Err: err}, closeNothing
	}
	c, finish, err := supervisor.Embed(embed.Options{
		Repos:   []string{place.Repo()},
		Prepare: func(who embed.Identity) error { return place.Give(who.UID, who.GID) },
	})
	if err != nil {
		return doctor.Subject{Err: errors.Join(err, place.Remove())}, closeNothing
	}
	return doctor.Subject{Supervisor: c, Place: place}, func() error {
		finish()
		return place.Remove()
	}
}
