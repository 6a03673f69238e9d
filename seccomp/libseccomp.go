package seccomp

import scmp "github.com/seccomp/libseccomp-golang"

// libraryName returns the name of a call as libseccomp knows it.
func libraryName(nr int, a arch) (string, bool) {
	name, err := scmp.ScmpSyscall(nr).GetNameByArch(a.library)
	return name, err == nil && name != ""
}

// number returns a call's number on an architecture; false if the architecture
// lacks the call, if this libseccomp cannot name it, or if it is newer than the
// table, so that the program does not depend on libseccomp's version.
func number(name string, a arch) (int, bool) {
	nr, err := scmp.GetSyscallFromNameByArch(name, a.library)
	// A call that exists elsewhere only has a negative place holder.
	return int(nr), err == nil && nr >= 0 && nr <= lastCall
}
