package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience bounds a command: a page whose command waits for somebody fails.
const patience = 15 * time.Minute

// A shell is a login of an account, without a terminal.
type shell struct {
	uid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// login starts a shell of an account, with its groups of now, in its home directory.
func login(name string) (*shell, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--init-groups", "--inh-caps=-all", "bash", "--noprofile", "--norc")
	cmd.Dir = u.HomeDir
	cmd.Env = []string{
		"HOME=" + u.HomeDir, "USER=" + name, "LOGNAME=" + name, "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=dumb",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// One pipe for both, so that messages stand where a terminal would show them.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &shell{uid, cmd, in, bufio.NewReader(r)}, nil
}

// close ends the shell with everything that it has started and that did not leave its process group.
func (s *shell) close() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// end separates the output of commands. The shell puts it together, so a command that is echoed does not contain it.
const end = "followed: exit status "

// run runs a command, and returns what it wrote and its exit status. Its standard input is empty.
func (s *shell) run(command string) (output string, code int, err error) {
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null; printf '\\n%%s%%d\\n' 'followed: exit'' status ' $?\n", command); err != nil {
		return "", 0, fmt.Errorf("the shell has ended: %w", err)
	}
	timer := time.AfterFunc(patience, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	var all strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if status, ok := strings.CutPrefix(line, end); ok {
			code, err := strconv.Atoi(strings.TrimSuffix(status, "\n"))
			return strings.TrimSuffix(all.String(), "\n"), code, err
		}
		all.WriteString(line)
		if err != nil {
			return "", 0, fmt.Errorf("the shell ended in it, or %v passed: %w: %s", patience, err, all.String())
		}
	}
}

// serve starts a command that does not end, and returns what it has written once that fits, or is anything if the page shows
// nothing.
func (s *shell) serve(command string, fits func(string) error) (string, error) {
	dir, err := os.MkdirTemp("", "follow-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chown(dir, s.uid, -1); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "output")
	if _, code, err := s.run(fmt.Sprintf("{ %s\n} >'%s' 2>&1 & behind=$!", command, file)); err != nil || code != 0 {
		return "", fmt.Errorf("exit status %d: %w", code, err)
	}
	for limit := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		_, code, err := s.run("kill -0 $behind") // before what it wrote is read, which is all of it if it has ended
		if err != nil {
			return "", err
		}
		written, err := os.ReadFile(file)
		if err == nil {
			err = fits(string(written))
		}
		switch ended := code != 0 || time.Now().After(limit); {
		case err == nil && len(written) > 0 && !ended:
			return string(written), nil
		case ended:
			return "", fmt.Errorf("it has ended, or %v passed: %w: %s", patience, err, written)
		}
	}
}
