package cgroup

import (
	"bytes"
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The files of a group are opened, read and written with bare system calls. os.OpenFile enters each file in the
// runtime's poller, since it can be polled for changes: five calls more, and a wake-up, as it always counts as ready.
// That doubles what a file costs.

// openFile opens a file that the kernel has made; one that it has not is not created.
func openFile(file string, flags int) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, file, flags)
	return fd, groupAt(file).failed("open", "", err)
}

// write writes to a file in one call, as the kernel wants it.
func write(file, value string) error {
	dir, name := filepath.Split(file)
	return groupAt(dir).write(name, value)
}

// readFile reads a file to its end.
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

// readOn reads a file anew from its beginning, into buf as far as that goes. A file that the kernel writes as one
// record, as all but lists of processes are, is at its end when a read gets less than it asked for; list says that this
// one may not be.
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

// valueOf returns the value of a name in a flat keyed file ("name value" in each line; cgroup-v2 document, "Format"),
// -1 if it has none.
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

// number parses a decimal number with white space around it, -1 if it is none.
func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// processesIn returns the processes of the group at a path.
func processesIn(dir string) ([]int, error) { return groupAt(dir).processes() }
