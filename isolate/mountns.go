package isolate

/*
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>

// A mount namespace belongs to a thread until it is inherited: it can only be made for the whole of a Go program before
// the runtime has started its threads.
__attribute__((constructor)) static void own_mount_namespace(void)
{
	char *ask = getenv("CORRAL_MOUNT_NAMESPACE");
	if (!ask || strcmp(ask, "make"))
		return;
	if (unshare(CLONE_NEWNS) || mount("", "/", "", MS_REC | MS_SLAVE, 0)) {
		fprintf(stderr, "corrald: a mount namespace of its own: %s\n", strerror(errno));
		exit(125);
	}
	// Ahead of jobs that keep every CPU busy, for their limits are watched from here. Threads have priorities of their
	// own too; jobs are set back to 0. A host that forbids it is served all the same.
	setpriority(PRIO_PROCESS, 0, -10);
	// Go's monitor sleeps for 20 microseconds at a time while there is work, and each time takes the processor from it. In
	// nanoseconds; what waits for a time may wait so much longer. Jobs have the kernel's default again.
	prctl(PR_SET_TIMERSLACK, 500000);
	memcpy(ask, "made", 4); // in place: Go reads the environment where the kernel put it
}
*/
import "C"

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The environment variable by which a program asks for a mount namespace of its own, and learns that it has one.
const (
	mountNamespaceVar  = "CORRAL_MOUNT_NAMESPACE"
	MountNamespaceMake = mountNamespaceVar + "=make"
	mountNamespaceMade = "made"
)

// OwnMountNamespace makes sure that the program runs in a mount namespace of its own, to which mounts of the host still
// come but from which none go: what the supervisor mounts is in nobody's table and ends with it, also by SIGKILL. If it
// must, it executes the program anew. Call it first in main.
func OwnMountNamespace() error {
	// libcontainer sends threads into the mount namespaces of jails and lets them end there. The first thread does not end
	// (runtime.LockOSThread): it would keep a jail's mounts for good, and /proc/self would speak of them. So main has it.
	runtime.LockOSThread()
	if os.Getenv(mountNamespaceVar) == mountNamespaceMade && unix.Gettid() == os.Getpid() {
		return os.Unsetenv(mountNamespaceVar)
	}
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, mountNamespaceVar+"=") })
	return syscall.Exec("/proc/self/exe", os.Args, append(environment, MountNamespaceMake))
}
