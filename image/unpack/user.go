package unpack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The user that the jobs of sessions run as, in an image as in every jail: see package rootfs and firstJobUID of package
// isolate.
const (
	userName = "job"
	userID   = "1000"
)

// maxAccounts is how many bytes a file of accounts has that is read.
const maxAccounts = 1 << 20

// nameUser gives the user of jobs a name in the image at dir, where its id has none: whoami(1), and programs that ask for
// their home directory, fail without. An image without these files, or with ones that cannot be changed, stays as it is.
func nameUser(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was a descriptor to start from
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

// addAccount appends a line of passwd(5) or group(5), unless its name or its id is in the file.
func addAccount(root *os.Root, name, line string) error {
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxAccounts {
		return nil // what a fifo or a device would do is nobody's matter
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
