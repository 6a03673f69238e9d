// Package embed starts a supervisor for a front-end that root started, and drops the front-end's root privileges.
//
// Start runs corrald as a child, over a socket pair, for the directories that root named; it ends with this process. The
// directories are opened with the rights of the user who called sudo (see Account). When Start returns, this process is
// no longer root: it runs as that user or the named account, otherwise as user corral, otherwise as an id without an
// account (see Choose). A program that needs no supervisor calls only Choose and Become.
//
// A program that calls Start must call FindCommand if its first argument is FindCommon.
//
// The package has few imports, since corral, which is started once per job, uses it.
package embed

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"corral/internal/directory"
	"corral/isolate/client"
	"corral/isolate/wire"
)

// Options are the parameters of Start.
type Options struct {
	Program string   // path of corrald
	Repos   []string // directories to serve, absolute and clean; the git directories of worktrees are served too
	// Owners maps a directory of Repos to the user that must own it; one without an entry may have any owner.
	Owners map[string]uint32
	// Account names the account with whose rights the directories are opened, as for function Account; "" is the user who
	// called sudo, otherwise root.
	Account    string
	Toolchains []string // directories to show read-only in every jail
	Network    string   // hosts that jobs may reach, as in job.Spec.Network; "" is what the operator's configuration allows
	// Key is the user's key of the API of the preset KeyOf, which jobs use by a placeholder; "" is none.
	Key, KeyOf string
	Images     bool   // permit this process to create and remove root file systems
	Kept       string // id of a kept layer, whose repository is served too; "" is none
	// Prepare, if set, is called while this process is still root, with the identity that it is about to get. If it
	// returns an error, Start fails.
	Prepare func(Identity) error
}

// Start starts a supervisor as a child and drops root. The returned function closes the client and waits until the
// supervisor has cleaned up the host and ended, at most 10 s. On an error this process is still root, unless dropping it
// failed halfway.
func Start(o Options) (c *client.Client, finish func(), err error) {
	err = Supervising.Do(func() error {
		c, finish, err = start(o)
		return err
	})
	return c, finish, err
}

func start(o Options) (*client.Client, func(), error) {
	whose, err := Account(o.Account)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, nil, err
	}
	commons := o.commons(whose)
	supervisor := o.command(theirs, whose, commons)
	closeKey, err := o.passKey(supervisor)
	if err == nil {
		err = supervisor.Start()
		closeKey()
	}
	theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	c := client.New(ours)
	c.ByPath, c.Commons = true, commons
	finish := func() {
		_ = c.Close()
		wait(supervisor)
	}
	if err := o.handOver(c, whose); err != nil {
		finish()
		return nil, nil, err
	}
	return c, finish, nil
}

// command returns the supervisor's command; its end of the socket is descriptor 3.
func (o *Options) command(socket *os.File, whose directory.Account, commons map[string]string) *exec.Cmd {
	args := []string{"--embedded", "3", "--account", whose.String()}
	for _, dir := range o.Repos {
		args = append(args, "--repo", dir)
		if owner, ok := o.Owners[dir]; ok {
			args = append(args, "--owner", strconv.FormatUint(uint64(owner), 10))
		}
		if common := commons[dir]; common != "" {
			args = append(args, "--common", common)
		}
	}
	for _, dir := range o.Toolchains {
		args = append(args, "--toolchain", dir)
	}
	if o.Network != "" {
		args = append(args, "--network", o.Network)
	}
	if o.Images {
		args = append(args, "--images")
	}
	if o.Kept != "" {
		args = append(args, "--kept", o.Kept)
	}
	cmd := exec.Command(o.Program, args...)
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CORRAL_MOUNT_NAMESPACE=make"}
	// A session of its own: an interrupt typed at the terminal is handled by this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// passKey gives the supervisor the key on a descriptor, as anybody can read a command line. The caller calls closeKey when the supervisor
// was started.
func (o *Options) passKey(supervisor *exec.Cmd) (closeKey func(), err error) {
	if o.Key == "" {
		return func() {}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	closeKey = func() { read.Close() }
	_, err = write.WriteString(o.Key)
	if err := errors.Join(err, write.Close()); err != nil {
		closeKey()
		return nil, err
	}
	supervisor.Args = append(supervisor.Args, "--key", o.KeyOf)
	supervisor.ExtraFiles = append(supervisor.ExtraFiles, read) // descriptor 4
	return closeKey, nil
}

// handOver waits for the supervisor and drops root in this process.
func (o *Options) handOver(c *client.Client, whose directory.Account) error {
	welcome, err := c.Hello()
	if err != nil {
		return errors.New("the supervisor did not start") // its standard error has the reason
	}
	who, err := Choose(Identity{int(welcome.FrontUID), int(welcome.FrontGID)})
	if named := (Identity{int(whose.UID), int(whose.GID)}); err == nil && !named.root() {
		who = named
	}
	if err != nil {
		return err
	}
	if o.Prepare != nil {
		if err := o.Prepare(who); err != nil {
			return err
		}
	}
	return who.Become()
}

// wait waits until the supervisor has ended, at most 10 s. The next supervisor cleans up after one that hangs.
func wait(supervisor *exec.Cmd) {
	done := make(chan struct{})
	go func() {
		_ = supervisor.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
	}
}
