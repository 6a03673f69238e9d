package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName is SIGTERM and the like; signals that have no name there are numbered (signal(7), real-time signals).
func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", n)
}
