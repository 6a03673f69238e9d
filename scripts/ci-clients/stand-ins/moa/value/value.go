// Package value stands for the values of expressions. Each is null.
package value

import (
	"errors"
	"iter"
)

var (
	ErrAttributeNotFound = errors.New("attribute not found")
	ErrInvalidKey        = errors.New("invalid key")
)

// A Kind is the type of a value.
type Kind string

const (
	NullKind   Kind = "null"
	StringKind Kind = "string"
	NumberKind Kind = "number"
	BoolKind   Kind = "boolean"
	ArrayKind  Kind = "array"
	ObjectKind Kind = "object"
)

type (
	Value  struct{}
	Mapper interface {
		All() iter.Seq2[Value, Value]
		Attr(string) (Value, error)
		Get(Value) (Value, error)
		Keys() iter.Seq[Value]
		Len() int
		Values() iter.Seq[Value]
		WithMarks(uint16) Mapper
	}
)

func Null() Value         { return Value{} }
func String(string) Value { return Value{} }
func Object(Mapper) Value { return Value{} }

func (v Value) Kind() Kind             { return NullKind }
func (v Value) WithMarks(uint16) Value { return v }
func (v Value) HasMarks(uint16) bool   { return false }
func (v Value) String() string         { return "" }
