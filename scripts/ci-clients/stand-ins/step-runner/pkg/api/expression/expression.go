// Package expression stands for the interpolation of a job's inputs, which the jobs of the tests do not have.
package expression

import (
	"errors"

	"gitlab.com/gitlab-org/moa/ast"
	"gitlab.com/gitlab-org/moa/value"
)

var errAbsent = errors.New("inputs of jobs are not part of this build: use variables")

// Sensitive marks a value that must not be shown.
const Sensitive uint16 = 1

// What is interpolated, and by what.
type (
	Input struct {
		Key   string
		Value value.Value
	}
	Evaluator struct{}
)

// NewEvaluator returns an error. So no Evaluator exists, and its methods are never called.
func NewEvaluator(value.Value) (*Evaluator, error) { return nil, errAbsent }

func (*Evaluator) Eval(string, ast.Expr) (value.Value, error) { return value.Null(), errAbsent }
