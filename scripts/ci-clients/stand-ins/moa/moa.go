// Package moa stands for the language of expressions in the inputs of jobs and in native steps, which the jobs of the tests
// do not have.
package moa

import (
	"errors"

	"gitlab.com/gitlab-org/moa/ast"
)

// ParseTemplate returns an error.
func ParseTemplate(string) (ast.Expr, error) {
	return nil, errors.New("inputs of jobs are not part of this build: use variables")
}

// EscapeTemplate returns the text as it is: nothing here interprets it.
func EscapeTemplate(text string) string { return text }
