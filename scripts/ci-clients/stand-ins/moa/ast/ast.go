// Package ast stands for parsed expressions. There are none.
package ast

type (
	Expr interface {
		Walk(Visitor) (Expr, error)
	}
	Visitor interface {
		Enter(Expr) (Visitor, error)
		Exit(Expr) (Expr, error)
	}
	Template struct{}
)

func (t *Template) Walk(Visitor) (Expr, error) { return t, nil }
