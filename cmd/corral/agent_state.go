package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/pipe"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

// What an agent keeps for the next time is an archive in its user's state directory: ~/.local/state/corral/agents/NAME.tar. The agent
// writes all that is in it, so nobody outside of a jail reads it: jobs of the agent's session unpack it before the agent starts, and
// pack it when the agent has ended.

// maxState is the maximum size of an archive in bytes.
const maxState = 1 << 30

// unpack and pack are the scripts of these jobs. The archive that pack is given is one that another run has written meanwhile: of each
// file, the newer one stays.
const (
	unpack = `umask 077; exec tar -xf - -C "$HOME"`
	pack   = `cd "$HOME" && umask 077 && { [ "$1" = 0 ] || tar -xf - --keep-newer-files 2>/dev/null || exit; } && shift || exit
for p do shift; if [ -e "$p" ]; then set -- "$@" "$p"; fi; done
[ $# = 0 ] || exec tar -cf - -- "$@"`
)

// userHome returns the home directory of the user whose rights this process has: that of the environment is root's if sudo set it.
func userHome() (string, error) {
	var st unix.Stat_t
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && unix.Stat(home, &st) == nil && int(st.Uid) == os.Geteuid() {
		return home, nil
	}
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil {
		return "", fmt.Errorf("the home directory of user %d is not known\nhint: set HOME to a directory of this user, or name an account with one: --account USER", os.Geteuid())
	}
	return u.HomeDir, nil
}

// A stateFile is the archive of an agent.
type stateFile struct {
	dir    *os.File
	name   string
	loaded syscall.Stat_t // of the archive that was unpacked; zero: there was none
}

// openState opens the directory of the archives, and makes it if need be.
func openState(name string) (*stateFile, error) {
	home, err := userHome()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(home, ".local/state/corral/agents")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	return &stateFile{dir: dir, name: filepath.Join(path, name+".tar")}, err
}

// open returns the archive and its identity, nil if there is none.
func (s *stateFile) open() (*os.File, syscall.Stat_t, error) {
	var st syscall.Stat_t
	f, err := os.OpenFile(s.name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, st, nil
	}
	if err != nil {
		return nil, st, err
	}
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, st, errors.Join(err, fmt.Errorf("%s is not a regular file", s.name))
	}
	return f, st, nil
}

// load unpacks the archive in the session.
func (s *stateFile) load(c *client.Client, spec *job.Spec) error {
	f, st, err := s.open()
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	s.loaded = st
	return helper(c, spec, f, io.Discard, unpack)
}

// save packs the paths in the session, and replaces the archive. If another run has replaced it since load, what is newer there stays.
func (s *stateFile) save(c *client.Client, spec *job.Spec, paths []string) (err error) {
	if err := unix.Flock(int(s.dir.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	defer s.dir.Close()
	others, st, err := s.open()
	if err != nil {
		return err
	}
	merge, in := "0", io.Reader(nil)
	if others != nil {
		defer others.Close()
		if st.Ino != s.loaded.Ino || st.Mtim != s.loaded.Mtim {
			merge, in = "1", others
		}
	}
	fresh, err := os.CreateTemp(filepath.Dir(s.name), filepath.Base(s.name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		_ = fresh.Close()
		_ = os.Remove(fresh.Name()) // unless it has taken the archive's place
	}()
	to := &bounded{w: fresh, left: maxState}
	if err := helper(c, spec, in, to, pack, append([]string{merge}, paths...)...); err != nil || to.left == maxState {
		return err
	}
	return errors.Join(fresh.Sync(), os.Rename(fresh.Name(), s.name), s.dir.Sync())
}

// A bounded writer fails after its bound.
type bounded struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, fmt.Errorf("more than %d bytes", maxState)
	}
	return b.w.Write(p)
}

// helper runs a script of corral's own in the session of spec. It reads from in, if that is not nil, and its output goes to out.
func helper(c *client.Client, spec *job.Spec, in io.Reader, out io.Writer, script string, args ...string) error {
	own := job.Spec{
		Args: append([]string{"sh", "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + job.Home},
		Repo: spec.Repo, Workspace: spec.Workspace, Session: spec.Session, Network: spec.Network, Claim: spec.Claim,
	}
	var stdio job.Stdio
	var read [2]*os.File
	var write *os.File
	err := embed.Piping.Do(func() (err error) {
		if read[0], stdio.Stdout, err = pipe.New(pipe.Reads); err == nil {
			read[1], stdio.Stderr, err = pipe.New(pipe.Reads)
		}
		if err == nil && in != nil {
			stdio.Stdin, write, err = os.Pipe()
		}
		return err
	})
	if err != nil {
		return err
	}
	if write != nil {
		go func() { // it ends with the job, which closes the other end
			_, _ = io.Copy(write, in)
			write.Close()
		}()
	}
	copied, said := make(chan error, 1), pipe.Head(read[1], 1000)
	go func() {
		_, err := io.Copy(out, read[0])
		read[0].Close()
		copied <- err
	}()
	result, err := c.Run(context.Background(), own, stdio)
	if err := errors.Join(err, <-copied); err != nil {
		return err
	}
	if why := <-said; result.Code() != 0 {
		return fmt.Errorf("exit code %d: %.200q", result.Code(), why)
	}
	return nil
}
