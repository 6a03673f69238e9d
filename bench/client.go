package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// clientWord is the first argument of the benchmark where it is the client of the mode network: in a job, or beside it.
const clientWord = "client"

// runClient obeys lines of standard input, and answers each with a line: nanoseconds, or what a line asks for.
func runClient(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			return fmt.Errorf("%q has no address", lines.Text())
		}
		answer, err := "", error(nil)
		switch what, at := words[0], words[1]; what {
		case "lookup":
			var list []string
			if list, err = net.LookupHost(at); err == nil {
				answer = list[0]
			}
		case "first":
			answer, err = timed(func() error { return firstByte(at) })
		case "tls":
			answer, err = timed(func() error { return firstTLSByte(at) })
		case "read":
			answer, err = timed(func() error { return readAll(at) })
		case "write":
			answer, err = timed(func() error { return writeAll(at, words) })
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func timed(f func() error) (string, error) {
	start := time.Now()
	err := f()
	return strconv.FormatInt(time.Since(start).Nanoseconds(), 10), err
}

// firstByte connects and waits for the first byte.
func firstByte(at string) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// firstTLSByte is firstByte with TLS, without a check of the certificate: what is measured is the way.
func firstTLSByte(at string) error {
	c, err := tls.Dial("tcp", at, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}) //nolint:gosec // see above
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

const clientBuffer = 256 << 10

// readAll reads to the end.
func readAll(at string) error {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	buffer := make([]byte, clientBuffer)
	for {
		if _, err := c.Read(buffer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// writeAll writes as many bytes as the third word says, and waits until the server has read them.
func writeAll(at string, words []string) error {
	left, err := strconv.ParseInt(words[len(words)-1], 10, 64)
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	for buffer := make([]byte, clientBuffer); left > 0; left -= int64(len(buffer)) {
		if _, err := c.Write(buffer[:min(left, int64(len(buffer)))]); err != nil {
			return err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}

// A driver drives a client: a process, or a job.
type driver struct {
	to   *os.File
	from *bufio.Scanner
	end  func() error
}

// ask sends a line and returns the answer.
func (d *driver) ask(format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(d.to, format+"\n", args...); err != nil {
		return "", err
	}
	if !d.from.Scan() {
		return "", errors.Join(errors.New("the client has ended"), d.from.Err(), d.end())
	}
	return d.from.Text(), nil
}

// time sends a line whose answer is a time.
func (d *driver) time(format string, args ...any) (time.Duration, error) {
	text, err := d.ask(format, args...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(n), err
}
