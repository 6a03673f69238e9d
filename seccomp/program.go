package seccomp

import "slices"

// program assembles the filter of a profile for an architecture.
//
// For calls without an argument rule it reads only nr and arch. When the filter is loaded, the kernel can therefore
// determine that such a call always gets the same action, and skips the filter for it (seccomp_is_const_allow in
// kernel/seccomp.c, since Linux 5.11).
func program(profile string, a arch) []byte {
	var p assembler
	find := newTree(intervals(&p, profile, a)).write(&p)
	own := p.load(offsetNr, find)
	p.load(offsetArch, p.jump(equal, a.audit, own, p.ret(actionKill)))
	return p.bytes()
}

// rulesByNumber returns the rules of a profile for the calls of an architecture.
func rulesByNumber(profile string, a arch) map[uint32]Rule {
	rules := map[uint32]Rule{}
	for _, r := range rulesOf(profile) {
		if nr, ok := number(r.Name, a); ok {
			rules[uint32(nr)] = r
		}
	}
	return rules
}

// intervals writes the end of the program, the returns and the argument rules, and returns the target of every call
// number, in ascending order.
func intervals(p *assembler, profile string, a arch) []interval {
	rules := rulesByNumber(profile, a)
	var list []interval
	for nr := range uint32(lastCall + 1) {
		to := answer(p, profile, rules[nr])
		if nr == 0 || to != list[len(list)-1].to {
			list = append(list, interval{nr, to})
		}
	}
	return append(list, interval{lastCall + 1, p.ret(actionENOSYS)})
}

// answer returns the instruction that implements a rule's verdict. The zero Rule, of a number without a rule, is
// refused.
func answer(p *assembler, profile string, r Rule) label {
	switch r.Verdict {
	case Allow:
		return p.ret(actionAllow)
	case Absent:
		return p.ret(actionENOSYS)
	case ByArgument:
		next := p.ret(actionAllow)
		for _, c := range slices.Backward(conditionsOf(profile, r.Name)) {
			next = check(p, c, next)
		}
		return next
	}
	return p.ret(actionEPERM)
}

// check writes an argument rule, unless the same code exists already. Calls that it does not refuse continue at next.
func check(p *assembler, c condition, next label) label {
	hit, miss := p.ret(c.action()), next
	if c.only {
		hit, miss = miss, hit
	}
	for _, clause := range slices.Backward(c.clauses) {
		holds := hit
		for _, o := range slices.Backward(clause) {
			holds = p.test(o, holds, miss)
		}
		miss = holds
	}
	return miss
}
