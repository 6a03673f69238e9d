package seccomp

import (
	"slices"
	"strings"
	"testing"
)

// TestTableIsComplete checks that every call of the kernel's tables has exactly one rule with a reason, in either
// profile, and that no rule names an unknown call.
func TestTableIsComplete(t *testing.T) {
	known := map[string]bool{}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range kernelTable(t, arch) {
			known[name] = true
		}
	}
	for _, profile := range Profiles() {
		ruled := map[string]int{}
		for _, r := range Table(profile) {
			ruled[r.Name]++
			if !known[r.Name] {
				t.Errorf("%s: rule for %q, which is in no kernel table", profile, r.Name)
			}
			if r.Family == "" || r.Reason == "" {
				t.Errorf("%s: rule for %s has family %q, reason %q", profile, r.Name, r.Family, r.Reason)
			}
			if (r.Verdict == ByArgument) != (r.Condition != "") {
				t.Errorf("%s: rule for %s is %q with condition %q", profile, r.Name, r.Verdict, r.Condition)
			}
		}
		for name := range known {
			if ruled[name] != 1 {
				t.Errorf("%s: %s has %d rules, want 1", profile, name, ruled[name])
			}
		}
	}
}

// TestStrictAllowsNoMore checks that strict allows no call that default refuses.
func TestStrictAllowsNoMore(t *testing.T) {
	verdicts := map[string]Verdict{}
	for _, r := range Table(defaultProfile) {
		verdicts[r.Name] = r.Verdict
	}
	fewer := 0
	for _, r := range Table(strictProfile) {
		before := verdicts[r.Name]
		if r.Verdict == before {
			continue
		}
		fewer++
		if r.Verdict != Refuse || before != Allow && before != ByArgument {
			t.Errorf("%s is %q in default and %q in strict", r.Name, before, r.Verdict)
		}
	}
	if fewer < 10 {
		t.Errorf("strict differs in only %d calls, want at least 10", fewer)
	}
}

// TestDangerousCalls checks that the calls once used to escape from jails or to exploit kernels are refused,
// independently of the tables.
func TestDangerousCalls(t *testing.T) {
	never := []string{
		"add_key", "bpf", "chroot", "clone3", "finit_module", "fsopen", "init_module", "io_uring_enter",
		"io_uring_setup", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount", "name_to_handle_at",
		"open_by_handle_at", "open_tree", "openat2", "perf_event_open", "pidfd_getfd", "pivot_root",
		"process_vm_readv", "process_vm_writev", "request_key", "setns", "umount2",
		"userfaultfd",
	}
	for _, profile := range Profiles() {
		for _, r := range Table(profile) {
			if slices.Contains(never, r.Name) && r.Verdict != Refuse && r.Verdict != Absent {
				t.Errorf("%s: %s is %q", profile, r.Name, r.Verdict)
			}
			if r.Name == "ptrace" && (r.Verdict == Allow) != (profile == defaultProfile) {
				t.Errorf("%s: ptrace is %q", profile, r.Verdict)
			}
		}
	}
}

// TestConditionsBelongToAllowedCalls checks that each condition applies to a rule, since it has no effect if its call
// is refused or unknown.
func TestConditionsBelongToAllowedCalls(t *testing.T) {
	for _, c := range conditions {
		for _, profile := range Profiles() {
			if c.profile != "" && c.profile != profile {
				continue
			}
			found := slices.ContainsFunc(Table(profile), func(r Rule) bool {
				return r.Name == c.call && r.Verdict == ByArgument && strings.Contains(r.Condition, c.text)
			})
			if !found {
				t.Errorf("%s: no rule has the condition of %s", profile, c.call)
			}
		}
	}
}
