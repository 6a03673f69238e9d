package seccomp

import "golang.org/x/sys/unix"

// A condition lists the arguments with which an allowed call is refused. Of several conditions of a call, the first
// that refuses it decides. All comparisons use the low 32 bits: the kernel declares each of these arguments as int,
// unsigned int or umode_t, or truncates it itself (clone, unshare), so it ignores the upper half.
type condition struct {
	call    string
	profile string     // the profile that it applies to; empty: all
	text    string     // as shown in the table
	only    bool       // refuse unless a clause holds, instead of if one holds
	errno   unix.Errno // of the refused calls; 0: EPERM
	clauses []clause
}

// action returns the action for the calls that the condition refuses.
func (c condition) action() uint32 {
	if c.errno == 0 {
		return actionEPERM
	}
	return unix.SECCOMP_RET_ERRNO | uint32(c.errno)
}

// A clause holds if all its operands hold.
type clause []operand

// An operand compares one masked argument with a set of values.
type operand struct {
	arg    int
	mask   uint32
	op     operator
	values []uint32 // for bits: a single value
}

type operator int

const (
	in    operator = iota // the argument is one of the values
	notIn                 // it is none of the values
	bits                  // it has at least one bit of the value
)

const whole = 0xffffffff // mask: compare all 32 bits

func is(arg int, values ...uint32) operand { return operand{arg, whole, in, values} }
func isNot(arg int, v ...uint32) operand   { return operand{arg, whole, notIn, v} }
func has(arg int, mask uint32) operand     { return operand{arg, whole, bits, []uint32{mask}} }
func masked(o operand, mask uint32) operand {
	o.mask = mask
	return o
}
