package seccomp

import "strings"

// A Verdict is a profile's answer to a system call.
type Verdict string

const (
	// Allow lets the call through to the kernel.
	Allow Verdict = "allow"
	// ByArgument lets the call through, but for the arguments that the rule's
	// Condition names: those are EPERM.
	ByArgument Verdict = "by argument"
	// Refuse answers EPERM, which programs take for a policy.
	Refuse Verdict = "EPERM"
	// Absent answers ENOSYS, on which programs take an older path.
	Absent Verdict = "ENOSYS"
)

// A Rule is one system call's line in a profile.
type Rule struct {
	Family    string  // group of calls that share the reason
	Name      string  // as in the kernel's table, e.g. "openat"
	Verdict   Verdict // this profile's answer
	Reason    string  // why, one line
	Condition string  // which arguments are refused; empty unless ByArgument
}

// A family is a line of the tables: calls that share a verdict and its reason.
type family struct {
	name    string
	verdict Verdict // in every profile
	strict  Verdict // in "strict"; empty: the same
	reason  string
	calls   string // names, separated by white space
}

// Table returns the rules of a profile, in the order of the tables: what is
// allowed, then what is refused. Each call that the package knows on some
// architecture has exactly one rule; a number that no rule names is EPERM, one
// above the last known number ENOSYS. Nil for a profile that does not exist.
func Table(profile string) []Rule {
	if profile != defaultProfile && profile != strictProfile && profile != Scanner {
		return nil
	}
	return rulesOf(profile)
}

func rulesOf(profile string) []Rule {
	var rules []Rule
	for _, families := range [][]family{allowed, refused} {
		for _, f := range families {
			rules = append(rules, f.rules(profile)...)
		}
	}
	return rules
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
		if c, ok := conditionOf(profile, name); ok && verdict == Allow {
			r.Verdict, r.Condition = ByArgument, c.text
		}
		rules = append(rules, r)
	}
	return rules
}

// basedOn returns the profile whose rows and conditions a profile has, but for
// openat2, which it has if it is another.
func basedOn(profile string) string {
	profile = strings.TrimSuffix(profile, starting)
	if profile == Scanner {
		return strictProfile
	}
	return profile
}
