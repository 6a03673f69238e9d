package seccomp

import "slices"

// program writes the filter of a profile for an architecture.
//
// For calls without an argument rule it reads nr and arch only. The kernel can
// therefore see, when the filter is loaded, that the answer is always the same,
// and does not run the filter for them at all (seccomp_is_const_allow in
// kernel/seccomp.c, since Linux 5.11).
func program(profile string, a arch) []byte {
	var p assembler
	find := newTree(intervals(&p, profile, a)).write(&p)
	own := p.load(offsetNr, find)
	p.load(offsetArch, p.jump(equal, a.audit, own, p.ret(actionKill)))
	return p.bytes()
}

// rulesByNumber returns the rules of a profile for the calls that an
// architecture has.
func rulesByNumber(profile string, a arch) map[uint32]Rule {
	rules := map[uint32]Rule{}
	for _, r := range rulesOf(profile) {
		if nr, ok := number(r.Name, a); ok {
			rules[uint32(nr)] = r
		}
	}
	return rules
}

// intervals writes what the program ends in, the answers and the argument rules,
// and returns which numbers go where: all there are, in ascending order.
func intervals(p *assembler, profile string, a arch) []interval {
	rules := rulesByNumber(profile, a)
	var list []interval
	for nr := range uint32(lastCall + 1) {
		to := answer(p, profile, rules[nr])
		if nr == 0 || to != list[len(list)-1].to {
			list = append(list, interval{nr, to})
		}
	}
	list = append(list, interval{lastCall + 1, p.ret(actionENOSYS)})
	if a.x32 {
		list = append(list, interval{x32Bit, p.ret(actionKill)})
	}
	return list
}

// answer returns the place that gives a rule's verdict. What has none, as a
// number that no rule names, is refused.
func answer(p *assembler, profile string, r Rule) place {
	switch r.Verdict {
	case Allow:
		return p.ret(actionAllow)
	case Absent:
		return p.ret(actionENOSYS)
	case ByArgument:
		if c, ok := conditionOf(profile, r.Name); ok {
			return check(p, c)
		}
	}
	return p.ret(actionEPERM)
}

// check writes an argument rule, unless another of the same code is there.
func check(p *assembler, c condition) place {
	hit, miss := p.ret(actionEPERM), p.ret(actionAllow)
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
