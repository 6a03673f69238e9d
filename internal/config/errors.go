package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one thing that is wrong in a file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 where it is not known
	Message      string

	nth int // of the file among those that were read
}

// Error returns file:line:column: message.
func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is all that is wrong in files, in their order.
type Errors []*Error

// maxShown is how many lines Errors.Error has, the last of which counts those beyond.
const maxShown = 20

// Error returns one line for each, of which the first twenty.
func (e Errors) Error() string {
	lines := make([]string, 0, maxShown+1)
	for i, one := range e {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(e)-maxShown))
			break
		}
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
