package seccomp

import (
	"fmt"
	"slices"
)

// A runner computes the kernel's action for a call.
type runner interface {
	run(seccompData) (uint32, error)
}

// verify runs a program on every number of the table and the one above, and returns an error unless each action
// matches the table. It shares only the table and the call numbers with the code that assembles the program.
func verify(m runner, profile string, a arch) error {
	rules := rulesByNumber(profile, a)
	for nr := range uint32(lastCall + 2) {
		for _, args := range probes(profile, rules[nr]) {
			if err := verifyCall(m, seccompData{nr: nr, arch: a.audit, args: args}, expectedAction(profile, nr, rules[nr], args)); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyCall checks the actions for a call, for the same number of a foreign architecture, and for that number with
// the x32 bit.
func verifyCall(m runner, own seccompData, want uint32) error {
	foreign, x32 := own, own
	foreign.arch ^= 1
	x32.nr |= x32Bit
	for _, c := range []struct {
		call seccompData
		want uint32
	}{{own, want}, {foreign, actionKill}, {x32, actionENOSYS}} {
		got, err := m.run(c.call)
		if err != nil {
			return err
		}
		if got != c.want {
			return fmt.Errorf("call %d of architecture %#x with arguments %#x gives action %#x, want %#x by the table",
				c.call.nr, c.call.arch, c.call.args, got, c.want)
		}
	}
	return nil
}

// expectedAction returns the action for a call by the table.
func expectedAction(profile string, nr uint32, r Rule, args [6]uint64) uint32 {
	switch {
	case nr > lastCall || r.Verdict == Absent:
		return actionENOSYS
	case r.Verdict == Allow:
		return actionAllow
	case r.Verdict == ByArgument:
		for _, c := range conditionsOf(profile, r.Name) {
			if c.refuses(args) {
				return c.action()
			}
		}
		return actionAllow
	}
	return actionEPERM
}

// refuses reports whether a call with these arguments is refused.
func (c condition) refuses(args [6]uint64) bool {
	for _, clause := range c.clauses {
		if !slices.ContainsFunc(clause, func(o operand) bool { return !o.holds(args) }) {
			return !c.only
		}
	}
	return c.only
}

func (o operand) holds(args [6]uint64) bool {
	word := uint32(args[o.arg]) & o.mask
	if o.op == bits {
		return word&o.values[0] != 0
	}
	return slices.Contains(o.values, word) == (o.op == in)
}

// probes returns arguments to test a rule with: for each clause every value that it names, a different value and
// zero, with the first values of the other operands. Each is repeated with all upper halves set, which no rule reads.
func probes(profile string, r Rule) [][6]uint64 {
	list := [][6]uint64{{}}
	for _, c := range conditionsOf(profile, r.Name) {
		for _, clause := range c.clauses {
			list = append(list, probesOf(clause)...)
		}
	}
	for _, args := range slices.Clone(list) {
		for i := range args {
			args[i] |= whole << 32
		}
		list = append(list, args)
	}
	return list
}

func probesOf(c clause) [][6]uint64 {
	var first [6]uint64
	for _, o := range c {
		first = o.with(first, o.values[0])
	}
	var list [][6]uint64
	for _, o := range c {
		for _, v := range append([]uint32{0}, o.values...) {
			lowest := o.mask & -o.mask
			list = append(list, o.with(first, v), o.with(first, v^lowest))
		}
	}
	return list
}

// with returns args with value in the bits that the operand compares. Two operands of a clause may compare bits of
// the same argument.
func (o operand) with(args [6]uint64, value uint32) [6]uint64 {
	args[o.arg] = args[o.arg]&^uint64(o.mask) | uint64(value&o.mask)
	return args
}
