// Corrald is the supervisor: it runs jobs in jails for the front-ends that connect to its socket. It is the only program
// of corral that keeps root; one of its child processes creates user namespaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/log"
	"corral/internal/text"
	"corral/internal/usage"
	"corral/internal/version"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// failure is the exit code if corrald itself fails.
const failure = 125

func main() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		cell.JailInit()
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, text.Lines("corrald: "+err.Error()))
		os.Exit(failure)
	}
}

type options struct {
	socket, config string
	embedded       int
	images         bool   // the client of an embedded supervisor may create and remove root file systems
	key            string // the preset of the API whose key is on descriptor 4; "": none
	network        string // what the jobs of an embedded supervisor may reach; "": what the configuration says
	version        bool
	supervisor     isolate.Config
	args           []string // of the command line
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("corrald", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.socket, "socket", client.DefaultSocket, "")
	f.StringVar(&o.config, "config", "", "")
	f.StringVar(&o.supervisor.Instance, "instance", "main", "")
	f.StringVar(&o.supervisor.StateDir, "state", host.DefaultStateDir, "")
	f.IntVar(&o.embedded, "embedded", -1, "")
	f.BoolVar(&o.images, "images", false, "")
	f.StringVar(&o.supervisor.Kept, "kept", "", "")
	f.StringVar(&o.network, "network", "", "")
	f.StringVar(&o.key, "key", "", "")
	f.BoolVar(&o.version, "version", false, "")
	f.Func("repo", "", func(dir string) error {
		o.supervisor.Repos = append(o.supervisor.Repos, admit.Entry{Path: dir})
		return nil
	})
	f.Func("owner", "", func(s string) error { // the owner of the preceding --repo
		uid, err := strconv.ParseUint(s, 10, 32)
		if n := len(o.supervisor.Repos); err == nil && n > 0 {
			owner := uint32(uid)
			o.supervisor.Repos[n-1].Owner = &owner
			return nil
		}
		return errors.New("must be a numeric user id, and come after --repo")
	})
	f.Func("account", "", func(s string) error {
		a, err := directory.ParseAccount(s)
		o.supervisor.Account = &a
		return err
	})
	f.Func("common", "", func(dir string) error {
		o.supervisor.Commons = append(o.supervisor.Commons, dir)
		return nil
	})
	f.Func("toolchain", "", func(dir string) error {
		o.supervisor.Toolchains = append(o.supervisor.Toolchains, dir)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if (o.images || o.supervisor.Kept != "" || o.supervisor.Account != nil || o.network != "" || o.key != "") && o.embedded < 0 {
		return nil, errors.New("--images, --kept, --account, --network and --key are for an embedded supervisor")
	}
	if o.embedded >= 0 {
		if o.supervisor.Account == nil { // fail closed: without an account, directories would be opened with root's rights
			return nil, errors.New("--embedded requires --account: directories are opened with that account's rights")
		}
		o.supervisor.Shown, o.supervisor.Toolchains = o.supervisor.Toolchains, nil
	}
	return o, nil
}

func run(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, usage.Corrald)
		return err
	}
	if err != nil {
		return fmt.Errorf("%w\nhint: corrald --help", err)
	}
	if o.version {
		_, err := fmt.Fprintln(stdout, "corrald", version.Version)
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("must be root, to create namespaces, mounts and cgroups\nhint: start it with sudo, or as a service")
	}
	if err := isolate.OwnMountNamespace(); err != nil {
		return err
	}
	// Descriptors that the caller left open must not leak into jails.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	o.supervisor.Log = logger(o.embedded >= 0)
	exe, err := isolate.Program()
	if err != nil {
		return err
	}
	o.supervisor.Programs = filepath.Dir(exe)
	o.args = args
	if err := o.configure(); err != nil {
		return err
	}
	if o.embedded >= 0 {
		return embedded(o)
	}
	return daemon(o)
}

// logger returns a logger that writes to standard error: text on a terminal, JSON otherwise. With quiet, for an embedded
// supervisor, it logs errors only.
func logger(quiet bool) *slog.Logger {
	if quiet {
		return log.Stderr(slog.LevelError, true)
	}
	return log.Stderr(slog.LevelInfo, false)
}

// untilStopped returns a channel that receives the signals that end this process. Call it before anything is created on
// the host: the default action of a signal would leave that behind. SIGTERM and SIGINT always end it, and those in also.
func untilStopped(also ...os.Signal) <-chan os.Signal {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, append([]os.Signal{unix.SIGTERM, unix.SIGINT}, also...)...)
	return stopped
}

// embedded serves the client that started this process, over the inherited descriptor, and returns when it disconnects.
func embedded(o *options) error {
	conn, err := wire.NewConn(os.NewFile(uintptr(o.embedded), "embedding"))
	if err != nil {
		return err
	}
	o.supervisor.Instance = "embedded-" + strconv.Itoa(os.Getpid())
	stopped := untilStopped(unix.SIGHUP)
	s, err := isolate.New(o.supervisor)
	if err != nil {
		conn.Close()
		return err
	}
	go func() {
		<-stopped
		conn.Close()
	}()
	s.ServeConn(conn, host.Peer{Account: o.supervisor.Account, Embedded: true, Images: o.images})
	return s.Close()
}

// daemon serves the socket until a signal ends this process.
func daemon(o *options) error {
	stopped := untilStopped()
	again := make(chan os.Signal, 1) // a signal that arrives while one waits is the same request
	signal.Notify(again, unix.SIGHUP)
	state := &notifier{log: o.supervisor.Log}
	o.supervisor.Again = func() (isolate.Config, error) {
		defer state.reloading()()
		return o.again()
	}
	s, err := isolate.New(o.supervisor)
	if err != nil {
		return err
	}
	l, err := socketOf(o.socket, socketGroup)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	state.ready(s)
	go func() {
		<-stopped
		l.Close()
	}()
	go func() {
		for range again {
			_, _ = s.Reload() // it logs the result
		}
	}()
	o.supervisor.Log.Info("serving", "socket", l.Addr().String(), "version", version.Version)
	err = s.Serve(l)
	state.stopping()
	return errors.Join(err, s.Close())
}
