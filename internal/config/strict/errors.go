package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"corral/internal/text"
)

// An Error is one mistake in a file.
type Error struct {
	File         string
	Line, Column int // from 1; 0 if unknown
	Message      string

	order int // of the file among those that were read
}

// Error returns file:line:column: message.
func (e *Error) Error() string { return e.place() + ": " + e.Message }

func (e *Error) place() string {
	switch name := text.Escape(e.File); {
	case e.Line == 0:
		return name
	case e.Column == 0:
		return fmt.Sprintf("%s:%d", name, e.Line)
	default:
		return fmt.Sprintf("%s:%d:%d", name, e.Line, e.Column)
	}
}

// Errors are all mistakes in the files that were read, in the order of the files.
type Errors []*Error

// maxShown is the maximum number of mistakes in the text of Errors.
const maxShown = 20

// Error returns one line per mistake. Mistakes after the twentieth are only counted, in a last line.
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
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
