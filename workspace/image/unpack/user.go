package unpack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The user of jobs in sessions, in an image as in every jail: see package rootfs and firstJobUID of package isolate.
const (
	userName = "job"
	userID   = "1000"
)

// maxAccounts is the maximum size of a passwd or group file that is changed.
const maxAccounts = 1 << 20

// nameUser adds the user of jobs to the accounts of the image at dir, unless its ID has a name: without one,
// whoami(1) and programs that look up their home directory fail. Missing files, and files that cannot be changed, are
// left as they are.
func nameUser(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only used for lookups
	for name, line := range map[string]string{
		"etc/passwd": userName + ":x:" + userID + ":" + userID + "::/home/job:/bin/sh\n",
		"etc/group":  userName + ":x:" + userID + ":\n",
	} {
		if err := addAccount(root, name, line); err != nil {
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
				err = ErrFull
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// addAccount appends a line to passwd(5) or group(5), unless the file contains its name or ID.
func addAccount(root *os.Root, name, line string) error {
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxAccounts {
		return nil // do not open a FIFO or a device
	}
	f, err := root.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAccounts+1))
	if err != nil {
		return err
	}
	for account := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(account), ":")
		if fields[0] == userName || len(fields) > 2 && fields[2] == userID {
			return nil
		}
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		line = "\n" + line
	}
	if _, err := f.WriteAt([]byte(line), int64(len(text))); err != nil {
		return err
	}
	return f.Close()
}
