package isolate

/*
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

// The path of this program. When the process was the only one of the mount namespace that it leaves, its file is on a mount
// that is nowhere any more, and /proc/self/exe has the path from there.
static char program[PATH_MAX];
static const char *own_path(void) { return program; }

// A mount namespace belongs to a thread until it is inherited. For the whole of a Go program it can only be made
// before the runtime has started its threads.
__attribute__((constructor)) static void own_mount_namespace(void)
{
	char *ask = getenv("CORRAL_MOUNT_NAMESPACE");
	if (!ask || strcmp(ask, "make"))
		return;
	if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
		program[0] = 0;
	if (unshare(CLONE_NEWNS) || mount("", "/", "", MS_REC | MS_SLAVE, 0)) {
		fprintf(stderr, "corrald: create a mount namespace: %s\n", strerror(errno));
		exit(125);
	}
	// The supervisor runs ahead of jobs that keep every CPU busy, because it enforces their limits. Priorities are per
	// thread, so this must precede the runtime's threads; jobs are set back to 0. A host that forbids it is served all
	// the same.
	setpriority(PRIO_PROCESS, 0, -10);
	// Go's system monitor sleeps for 20 microseconds at a time while there is work, and each wake-up takes the
	// processor from that work. The slack is in nanoseconds: timed waits may be that much longer. Jobs get the
	// kernel's default again.
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

// Environment variable with which a program requests a mount namespace of its own, and learns that it has one.
const (
	mountNamespaceVar  = "CORRAL_MOUNT_NAMESPACE"
	MountNamespaceMake = mountNamespaceVar + "=make"
	mountNamespaceMade = "made"
)

// OwnMountNamespace ensures that the program runs in a mount namespace of its own. Mounts made on the host propagate
// into it and none propagate out: the supervisor's mounts appear in no other mount table and end with it, even after
// SIGKILL. If necessary it executes the program again. Call it first in main.
func OwnMountNamespace() error {
	// libcontainer moves threads into the mount namespaces of jails and lets them end there. The first thread never
	// ends (runtime.LockOSThread): if it were moved, it would keep a jail's mounts for good, and /proc/self would
	// refer to them. So main is locked to it.
	runtime.LockOSThread()
	if os.Getenv(mountNamespaceVar) == mountNamespaceMade && unix.Gettid() == os.Getpid() {
		return os.Unsetenv(mountNamespaceVar)
	}
	environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, mountNamespaceVar+"=") })
	return syscall.Exec("/proc/self/exe", os.Args, append(environment, MountNamespaceMake))
}

// Program returns the path of the running program, as it was before OwnMountNamespace.
func Program() (string, error) {
	if path := C.GoString(C.own_path()); path != "" {
		return path, nil
	}
	return os.Executable()
}
