// Gosandbox runs a program in a container of go-sandbox for each line that it reads, and answers ok or an error. It is a peer
// of the benchmark.
//
// Usage: gosandbox DIR warm|cold FILTER PROGRAM
//
// Warm uses one container for all runs; cold makes one for each. FILTER is a file with the system call filter, in the format
// of the kernel.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/criyle/go-sandbox/container"
	"github.com/criyle/go-sandbox/pkg/seccomp"
	"github.com/criyle/go-sandbox/runner"
)

func main() {
	if err := container.Init(); err != nil {
		fmt.Fprintln(os.Stderr, "gosandbox:", err)
		os.Exit(1)
	}
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gosandbox:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: gosandbox DIR warm|cold FILTER PROGRAM")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	filter, err := readFilter(args[2])
	if err != nil {
		return err
	}
	builder := &container.Builder{Root: args[0], CloneFlags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER |
		syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | 0x02000000} // CLONE_NEWCGROUP
	param := container.ExecveParam{
		Args: args[3:], Env: []string{"PATH=/usr/bin:/bin"}, Seccomp: filter, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
	}
	run := func() error { return once(builder, param) }
	if args[1] == "warm" {
		standing, err := builder.Build()
		if err != nil {
			return err
		}
		defer standing.Destroy()
		run = func() error { return execute(standing, param) }
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer := "ok"
		if err := run(); err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(os.Stdout, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func once(builder *container.Builder, param container.ExecveParam) error {
	c, err := builder.Build()
	if err != nil {
		return err
	}
	return errors.Join(execute(c, param), c.Destroy())
}

func execute(c container.Environment, param container.ExecveParam) error {
	if r := c.Execve(context.Background(), param); r.Status != runner.StatusNormal {
		return fmt.Errorf("%v: %s", r.Status, r.Error)
	}
	return nil
}

func readFilter(name string) (seccomp.Filter, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var filter seccomp.Filter
	for ; len(text) >= 8; text = text[8:] {
		filter = append(filter, syscall.SockFilter{
			Code: binary.LittleEndian.Uint16(text), Jt: text[2], Jf: text[3], K: binary.LittleEndian.Uint32(text[4:]),
		})
	}
	return filter, nil
}
