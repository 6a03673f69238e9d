package seccomp

import "strings"

// A Verdict is what a profile does with a system call.
type Verdict string

const (
	// Allow lets the call through to the kernel.
	Allow Verdict = "allow"
	// ByArgument lets the call through, except with the arguments of the rule's Condition, which are EPERM.
	ByArgument Verdict = "by argument"
	// Refuse returns EPERM, which programs treat as a policy.
	Refuse Verdict = "EPERM"
	// Absent returns ENOSYS, on which programs fall back to an older call.
	Absent Verdict = "ENOSYS"
)

// A Rule is one system call's line in a profile.
type Rule struct {
	Family    string  // group of calls with the same reason
	Name      string  // as in the kernel's table, e.g. "openat"
	Verdict   Verdict // of this profile
	Reason    string  // one line
	Condition string  // the refused arguments; empty unless ByArgument
}

// A family is a row of the tables: calls with the same verdict and reason.
type family struct {
	name    string
	verdict Verdict // in every profile
	strict  Verdict // in "strict"; empty: as verdict
	reason  string
	calls   string // names, separated by white space
}

// Table returns the rules of a profile in the order of the tables: the allowed calls, then the refused ones. Each
// call known on either architecture has exactly one rule; a number without a rule is EPERM, one above the last known
// number ENOSYS. Table returns nil for an unknown profile.
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

// basedOn returns the profile whose rows and conditions apply to a profile. If it is another one, the profile has
// openat2 in addition.
func basedOn(profile string) string {
	profile = strings.TrimSuffix(profile, starting)
	if profile == Scanner {
		return strictProfile
	}
	return profile
}
