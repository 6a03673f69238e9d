package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/store/at"
)

// The size of a secret in bytes. A shorter one would be in many responses, where it is looked for.
const (
	minSecret = 8
	maxSecret = 4096
)

// secretTimeout is how long a command may take.
const secretTimeout = 10 * time.Second

// A secretSource says where a secret is that the operator's configuration names, in one of its fields. A file or program is used only if
// root alone controls it and every directory above it, and is neither a pipe nor a device, at which a reader could wait for ever.
type secretSource struct {
	File       string   // absolute path
	Credential string   // name of a credential, see systemd.exec(5)
	Command    []string // the program is an absolute path
}

// Read returns the secret without a line end behind it. No error has a part of the secret.
func (s secretSource) Read() (string, error) {
	switch {
	case s.File != "":
		return s.clean(readSecret(s.File))
	case s.Credential != "":
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return "", fmt.Errorf("credential %q: the service manager passes no credentials\nhint: add LoadCredential=%s:FILE to corrald.service, and restart it",
				s.Credential, s.Credential)
		}
		return s.clean(readSecret(filepath.Join(dir, s.Credential)))
	}
	return s.clean(s.run())
}

// clean checks a secret that was read.
func (s secretSource) clean(b []byte, err error) (string, error) {
	if err != nil {
		return "", err
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	name := s.File + s.Credential
	if len(s.Command) > 0 {
		name = "the output of " + s.Command[0]
	}
	if len(b) < minSecret || len(b) > maxSecret {
		return "", fmt.Errorf("%s has a secret of %d bytes: must be %d to %d", name, len(b), minSecret, maxSecret)
	}
	if bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", fmt.Errorf("%s has more than a secret: must be one line of printable ASCII characters", name)
	}
	return string(b), nil
}

// openOwned opens a file that root alone controls, and returns its mode.
func openOwned(path string) (*os.File, uint32, error) {
	dir, err := directory.Open(filepath.Dir(path))
	if err != nil {
		return nil, 0, err
	}
	defer dir.Close()
	if err := directory.RootOnly(filepath.Dir(path), dir); err != nil {
		return nil, 0, fmt.Errorf("%s: root alone must control the path to it: %w", path, err)
	}
	f, st, err := at.Regular(dir, filepath.Base(path))
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, fmt.Errorf("%s is a symbolic link: name the file that it leads to", path)
	}
	if err != nil {
		return nil, 0, err
	}
	if st.Uid != 0 {
		f.Close()
		return nil, 0, fmt.Errorf("%s belongs to user %d: must belong to root\nhint: chown root %s", path, st.Uid, path)
	}
	return f, st.Mode & 0o7777, nil
}

func readSecret(path string) ([]byte, error) {
	f, mode, err := openOwned(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: others than root may read the secret\nhint: chmod 600 %s, and take another secret if somebody could have read it", path, mode, path)
	}
	return io.ReadAll(io.LimitReader(f, maxSecret+3))
}

// run runs the command, and ends it with everything that it started.
func (s secretSource) run() ([]byte, error) {
	program := s.Command[0]
	f, mode, err := openOwned(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if mode&0o022 != 0 || mode&0o100 == 0 {
		return nil, fmt.Errorf("%s has mode %04o: must be executable, and writable by root alone", program, mode)
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretTimeout)
	defer cancel()
	var out bounded
	cmd := exec.CommandContext(ctx, program, s.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, "/", &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: did not end within %v", program, secretTimeout)
	case err != nil:
		return nil, fmt.Errorf("%s: %w\nhint: run it as root, with nothing but PATH in the environment", program, err)
	}
	return out.b, nil
}

// A bounded writer keeps what a secret can have, and drops the rest.
type bounded struct{ b []byte }

// Write implements io.Writer.
func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), maxSecret+3-len(w.b))]...)
	return len(p), nil
}
