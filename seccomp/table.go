package seccomp

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Table returns the rules of a profile in the order of the tables: the allowed calls, then the refused ones. Each
// call known on either architecture has exactly one rule; a number without a rule is EPERM, one above the last known
// number ENOSYS. Table returns nil for an unknown profile.
func Table(profile string) []Rule {
	if profile != defaultProfile && profile != strictProfile && profile != Scanner && !isEgress(profile) {
		return nil
	}
	return rulesOf(profile)
}

func rulesOf(profile string) []Rule {
	if isEgress(profile) {
		return egressRules(profile)
	}
	var rules []Rule
	for _, families := range [][]family{allowed, refused} {
		for _, f := range families {
			rules = append(rules, f.rules(profile)...)
		}
	}
	return rules
}

// text returns the conditions of a call, each with the error of the calls that it refuses.
func text(list []condition) string {
	var texts []string
	for _, c := range list {
		texts = append(texts, c.text+": "+unix.ErrnoName(unix.Errno(c.action()&unix.SECCOMP_RET_DATA)))
	}
	return strings.Join(texts, "; ")
}

func (f family) rules(profile string) []Rule {
	verdict := f.verdict
	if basedOn(profile) == strictProfile && f.strict != "" {
		verdict = f.strict
	}
	if f.name == "openat2" && basedOn(profile) != profile {
		verdict = Allow
	}
	var rules []Rule
	for _, name := range strings.Fields(f.calls) {
		r := Rule{Family: f.name, Name: name, Verdict: verdict, Reason: f.reason}
		if list := conditionsOf(profile, name); len(list) > 0 && verdict == Allow {
			r.Verdict, r.Condition = ByArgument, text(list)
		}
		rules = append(rules, r)
	}
	return rules
}
