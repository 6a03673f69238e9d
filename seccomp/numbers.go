package seccomp

import "strconv"

// lastCall is the highest number that the tables cover: set_mempolicy_home_node of Linux 5.17, the newest call that
// libseccomp 2.5.4 can name. From 424 on, a call has the same number on every architecture, so this holds for both.
// Higher numbers are ENOSYS, as on that kernel: on EPERM, C libraries would fail where ENOSYS makes them fall back.
const lastCall = 450

// x32Bit marks a call of the x32 ABI in an amd64 process (__X32_SYSCALL_BIT). Such numbers are above lastCall: most kernels lack the ABI.
const x32Bit = 0x40000000

// newer names the calls that libseccomp 2.5.4 does not know, for reports. Source: scripts/syscall.tbl of Linux 6.11
// and later.
var newer = map[int]string{
	451: "cachestat",
	452: "fchmodat2",
	453: "map_shadow_stack",
	454: "futex_wake",
	455: "futex_wait",
	456: "futex_requeue",
	457: "statmount",
	458: "listmount",
	459: "lsm_get_self_attr",
	460: "lsm_set_self_attr",
	461: "lsm_list_modules",
	462: "mseal",
	463: "setxattrat",
	464: "getxattrat",
	465: "listxattrat",
	466: "removexattrat",
	467: "open_tree_attr",
	468: "file_getattr",
	469: "file_setattr",
	470: "listns",
	471: "rseq_slice_yield",
}

// newerAMD64 names those that exist on amd64 only.
var newerAMD64 = map[int]string{
	335: "uretprobe",
	336: "uprobe",
}

// Name returns the name of system call nr on arch ("amd64" or "arm64") for a report, for example "mount". For a
// number without a name, or an unknown architecture, it returns "syscall_" and the number.
func Name(nr int, arch string) string {
	unknown := "syscall_" + strconv.Itoa(nr)
	a, err := findArch(arch)
	if err != nil || nr < 0 {
		// libseccomp also names negative numbers, its own placeholders.
		return unknown
	}
	if name, ok := newer[nr]; ok {
		return name
	}
	if name, ok := newerAMD64[nr]; ok && a.name == "amd64" {
		return name
	}
	if name, ok := libraryName(nr, a); ok {
		return name
	}
	return unknown
}
