// Corral-egress connects the jobs of one user to hosts, under the rules of the operator. The supervisor starts it, with a
// control socket as descriptor 3 and a compiled filter of system calls as descriptor 4; it is not meant to be run by hand.
// Package egress does the work.
//
// If a rule is about a registry of packages, descriptor 5 is the directory in which it keeps them, and CORRAL_STORE_SIZE in the
// environment is the bound of that in bytes.
//
// CORRAL_CONNECTIONS in the environment has the numbers of connections that one door and all doors may have at once.
//
// It reads the addresses of DNS servers, the host's table of names and the certificates of authorities when it starts, and gives
// up all access to files before it reads a message. When /etc/resolv.conf or /etc/hosts changes, the supervisor passes it
// descriptors of the new files.
package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"corral/egress"
	"corral/egress/dial"
	"corral/egress/store"
	"corral/internal/log"
)

// Descriptors that the supervisor passes.
const (
	controlFD = 3
	filterFD  = 4
	storeFD   = 5 // with sizeVariable
)

// sizeVariable is the variable with the bound of the store.
const sizeVariable = "CORRAL_STORE_SIZE"

// connectionsVariable is the variable with the numbers of connections.
const connectionsVariable = "CORRAL_CONNECTIONS"

// otherFiles are the descriptors that the process may have beside two for each connection: for doors, and its own.
const otherFiles = 512

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "corral-egress:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 {
		return fmt.Errorf("started with arguments %q: corrald starts it, with none", os.Args[1:])
	}
	if err := unprivileged(); err != nil {
		return err
	}
	nameProcess()
	signal.Ignore(unix.SIGPIPE) // the log may end before its writers
	resolver, err := dial.ReadSystem("/etc/resolv.conf", "/etc/hosts")
	if err != nil {
		return err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return fmt.Errorf("certificates of authorities: %w", err)
	}
	logger := log.Stderr(slog.LevelInfo, true) // text: a line is a value in the supervisor's log, which may be JSON
	_, _ = time.Now().Zone()                   // reads the time zone, for the log
	conns, files, err := limits(os.Getenv(connectionsVariable), logger)
	if err != nil {
		return err
	}
	directory, size, err := storeOf(os.Getenv(sizeVariable))
	if err != nil {
		return err
	}
	if err := confine(filterFD, directory, syscall.AllThreadsSyscall6); err != nil {
		return err
	}
	c := egress.Config{Dialer: dial.New(resolver), Names: resolver, Log: logger, Roots: roots, Connections: conns, Files: files}
	if directory >= 0 { // what is in it is read only now: others than this process may have written it
		if c.Store, err = store.Open(os.NewFile(uintptr(directory), "store"), size); err != nil {
			logger.Error("packages are not kept", "error", err) // they are requested again by each job
		}
	}
	server := egress.New(c)
	return server.Serve(os.NewFile(controlFD, "control socket"))
}

// storeOf returns the directory of the store, -1 if there is none, and its bound.
func storeOf(size string) (directory int, most int64, err error) {
	if size == "" {
		return -1, 0, nil
	}
	most, err = strconv.ParseInt(size, 10, 64)
	if err != nil || most <= 0 {
		return -1, 0, fmt.Errorf("%s is %q, must be a number of bytes", sizeVariable, size)
	}
	var st unix.Stat_t
	if err := unix.Fstat(storeFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, 0, fmt.Errorf("descriptor %d is not the directory of the store", storeFD)
	}
	unix.CloseOnExec(storeFD)
	unix.Umask(0) // the next process may have another id; nobody else reaches the directory
	return storeFD, most, nil
}

// nameProcess gives the process the name that ps(1) and top(1) show. It was executed by a descriptor, whose number would be the name.
func nameProcess() {
	name := append([]byte("corral-egress"), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // for people alone
}

// limits returns how many connections a door may have, and how many descriptors the process, which it bounds to that.
func limits(connections string, logger *slog.Logger) (conns, files int, err error) {
	job, user, ok := strings.Cut(connections, ",")
	conns, err = strconv.Atoi(job)
	most, failed := strconv.Atoi(user)
	if err := errors.Join(err, failed); !ok || err != nil || conns < 1 || most < 1 {
		return 0, 0, fmt.Errorf("%s is %q, must be two positive numbers with a comma between", connectionsVariable, connections)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, fmt.Errorf("getrlimit: %w", err)
	}
	want := uint64(2*most + otherFiles)
	if limit.Max < want {
		logger.Warn("jobs have fewer connections than network_connections.user: raise the supervisor's limit of open files",
			"open files", limit.Max, "needed", want)
	}
	limit.Max = min(limit.Max, want)
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, 0, fmt.Errorf("setrlimit: %w", err)
	}
	return conns, int(limit.Max), nil
}
