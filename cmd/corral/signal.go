package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns a name such as SIGTERM, or SIG and the number for signals without a name (real-time signals,
// signal(7)).
func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", n)
}
