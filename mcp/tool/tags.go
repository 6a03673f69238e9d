package tool

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"corral/internal/lazyregexp"
)

// An argument is one argument of a tool, as the tags of a struct field describe it.
type argument struct {
	name     string
	index    []int // of the field, see reflect.StructField
	about    string
	required bool
	min, max int      // of a number; of the length of a string, or of each string in a list
	bytes    bool     // lengths are in bytes of UTF-8 instead of characters
	items    int      // maximum length of a list
	enum     []string // accepted values; nil accepts any
	pattern  *regexp.Regexp
	usual    string // default value; "" is the type's zero value
	noNUL    bool
	noNull   bool
	single   bool       // a string is accepted for a list of one
	hidden   bool       // not in the schema: for callers that expect it
	also     []string   // other names, which are not in the schema
	named    Named      // of a type whose values have other names; else nil
	members  []argument // of an object, or of each object in a list
}

// Choices is implemented by string types with a fixed set of values.
type Choices interface {
	// Choices returns the values, in the order in which the schema lists them.
	Choices() []string
}

// Named is implemented by types with Choices that accept other names for them.
type Named interface {
	// Named returns the choice that a name means, or the name itself.
	Named(name string) string
	// Hint returns a sentence for a caller whose value is none of the choices, "" if there is nothing to say.
	Hint(name string) string
}

// means reports whether a key of a call is a name of the argument.
func (a *argument) means(key string) bool { return a.name == key || slices.Contains(a.also, key) }

var argumentTables sync.Map // reflect.Type to []argument

// argumentsOf returns the arguments that the tags of a struct describe. Fields are strings, integers, booleans, lists of
// strings, structs behind pointers, lists of structs, and pointers to scalars, which are nil if the argument is absent; the
// fields of embedded structs are arguments, too. The tags are
//
//	arg:"NAME,OPTION,…"  required, min=N, max=N, items=N, bytes, nonul, nonull, single, hidden; N may end in KiB or MiB
//	about:"TEXT"         description for the schema; says what the schema's keywords cannot
//	default:"VALUE"      value of an absent argument; of a pointer for the schema only
//	enum:"A,B"           accepted values; a type can have them as its Choices instead
//	pattern:"REGEXP"
//	also:"NAME,NAME"     other names that are accepted
//
// It panics on a tag that it does not know: a programming error that each test of the tool finds.
func argumentsOf(t reflect.Type) []argument {
	if known, ok := argumentTables.Load(t); ok {
		return known.([]argument)
	}
	var list []argument
	for _, f := range reflect.VisibleFields(t) {
		if tag, ok := f.Tag.Lookup("arg"); ok {
			list = append(list, argumentOf(f, tag))
		}
	}
	argumentTables.Store(t, list)
	return list
}

func argumentOf(f reflect.StructField, tag string) argument {
	name, options, _ := strings.Cut(tag, ",")
	a := argument{name: name, index: f.Index, about: f.Tag.Get("about"), usual: f.Tag.Get("default")}
	for option := range strings.SplitSeq(options, ",") {
		a.option(option)
	}
	if words := f.Tag.Get("enum"); words != "" {
		a.enum = strings.Split(words, ",")
	} else if c, ok := reflect.Zero(f.Type).Interface().(Choices); ok {
		a.enum = c.Choices()
	}
	if words := f.Tag.Get("also"); words != "" {
		a.also = strings.Split(words, ",")
	}
	a.named, _ = reflect.Zero(f.Type).Interface().(Named)
	if expr := f.Tag.Get("pattern"); expr != "" {
		a.pattern = lazyregexp.New(expr)()
	}
	t := f.Type
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		a.members = argumentsOf(t)
	}
	return a
}

func (a *argument) option(option string) {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "":
	case "required":
		a.required = true
	case "bytes":
		a.bytes = true
	case "nonul":
		a.noNUL = true
	case "nonull":
		a.noNull = true
	case "single":
		a.single = true
	case "hidden":
		a.hidden = true
	case "min":
		a.min = numberOf(value)
	case "max":
		a.max = numberOf(value)
	case "items":
		a.items = numberOf(value)
	default:
		panic(fmt.Sprintf("mcp: argument %s: unknown option %q", a.name, option))
	}
}

// numberOf parses a number with an optional unit.
func numberOf(s string) int {
	shift := 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			s, shift = rest, bits
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("mcp: %q in a tag is not a number", s))
	}
	return n << shift
}

// setDefault sets the argument's field of a struct to its default.
func (a *argument) setDefault(into reflect.Value) {
	v := into.FieldByIndex(a.index)
	if a.usual == "" || v.Kind() == reflect.Pointer {
		return
	}
	switch usual := a.defaultOf(v.Type()).(type) {
	case string:
		v.SetString(usual)
	case int:
		v.SetInt(int64(usual))
	case bool:
		v.SetBool(usual)
	}
}

// defaultOf returns the default value of type t, nil if a list or object.
func (a *argument) defaultOf(t reflect.Type) any {
	switch t.Kind() { //nolint:exhaustive // the kinds of argumentsOf
	case reflect.String:
		return a.usual
	case reflect.Int:
		if a.usual == "" {
			return 0
		}
		return numberOf(a.usual)
	case reflect.Bool:
		return a.usual == "true"
	}
	return nil
}
