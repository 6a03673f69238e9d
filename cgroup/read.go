package cgroup

import (
	"bytes"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

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
