package cgroup

import (
	"bytes"
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The files of a group are opened, read and written with plain system calls. os.OpenFile would register each file
// with the runtime's poller, since it supports poll(2): five more calls, and a wake-up, because it always counts as
// ready. That doubles the cost of a file.

// openFile opens a file that the kernel has created; it never creates one.
func openFile(file string, flags int) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, file, flags)
	return fd, groupAt(file).failed("open", "", err)
}

// write writes value to a file in a single call, as the kernel requires.
func write(file, value string) error {
	dir, name := filepath.Split(file)
	return groupAt(dir).write(name, value)
}

func readFile(file string) ([]byte, error) {
	fd, err := openFile(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := readOn(fd, make([]byte, 512), true)
	if err != nil {
		return nil, groupAt(file).failed("read", "", err)
	}
	return b, nil
}

// readOn reads a file from its beginning, into buf if it is large enough. Most cgroup files are written by the kernel
// as one record, which ends where a read returns less than requested; list must be set for the others, the lists of
// processes.
func readOn(fd int, buf []byte, list bool) ([]byte, error) {
	for n := 0; ; {
		got, err := unix.Pread(fd, buf[n:], int64(n))
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return nil, err
		}
		n += got
		if got == 0 || !list && n < len(buf) {
			return buf[:n], nil
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// valueOf returns the value of name in a flat keyed file ("name value" in each line; cgroup-v2 document, "Format"),
// or -1 if it is missing.
func valueOf(text []byte, name string) int64 {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		if key, value, ok := bytes.Cut(line, []byte{' '}); ok && string(key) == name {
			return number(value)
		}
	}
	return -1
}

// number parses a decimal number surrounded by optional white space. It returns -1 if text is not a number.
func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func processesIn(dir string) ([]int, error) { return groupAt(dir).processes() }
