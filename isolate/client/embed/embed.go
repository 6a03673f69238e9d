// Package embed gives root's front-end a supervisor of its own, and takes root away from the front-end.
//
// Start runs corrald as a child, over a socket pair, for the directories that root named; it ends with this process. They are
// opened with the rights of who asked sudo (see Account). When Start returns, this process is root no more: it is who asked
// sudo or the account that is named, else user corral, else an id that is nobody's (see Choose). A program that needs no supervisor calls Choose and Become alone.
//
// A program that calls Start must call FindCommand when its first argument is FindCommon.
//
// It imports little, for corral, which is started once per job, does.
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

// Options say what the supervisor serves.
type Options struct {
	Program string   // path of corrald
	Repos   []string // directories to serve, absolute and clean, and the git directories of those that are worktrees
	// Owners are the users whom directories of Repos must belong to, by path; one without an entry may be anybody's.
	Owners map[string]uint32
	// Account is with whose rights the directories are opened, as Account takes it; "" is who asked sudo, else root.
	Account    string
	Toolchains []string // directories to show read-only in every jail
	Images     bool     // let this process make and remove root file systems
	Kept       string   // id of a kept layer, whose repository is served then; "" is none
	// Prepare, if there is one, is called while this process is root, with who it is about to become. Its error ends it
	// all.
	Prepare func(Identity) error
}

// Start starts a supervisor as a child and gives up root. The function that it returns ends both, and waits for the
// supervisor to have removed what it had on the host.
func Start(o Options) (*client.Client, func(), error) {
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
	err = supervisor.Start()
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

// command is the supervisor's; its end of the socket is descriptor 3.
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
	// A session of its own: an interrupt typed at the terminal is for this process to act on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// handOver leaves the supervisor as the only one that is root.
func (o *Options) handOver(c *client.Client, whose directory.Account) error {
	welcome, err := c.Hello()
	if err != nil {
		return errors.New("the supervisor did not start") // it has said why
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

// wait gives the supervisor the time to remove what it has on the host. One that hangs is left to the next one's clearing.
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
