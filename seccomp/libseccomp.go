package seccomp

import scmp "github.com/seccomp/libseccomp-golang"

// libraryName returns libseccomp's name of a call, if it has one.
func libraryName(nr int, a arch) (string, bool) {
	name, err := scmp.ScmpSyscall(nr).GetNameByArch(a.library)
	return name, err == nil && name != ""
}

// number returns a call's number on an architecture. It returns false if the architecture lacks the call, if this
// libseccomp does not know its name, or if the call is newer than the table: otherwise the program would depend on
// the version of libseccomp.
func number(name string, a arch) (int, bool) {
	nr, err := scmp.GetSyscallFromNameByArch(name, a.library)
	// A call that exists only on other architectures has a negative placeholder.
	return int(nr), err == nil && nr >= 0 && nr <= lastCall
}
