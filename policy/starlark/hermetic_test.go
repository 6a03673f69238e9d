package starlark

import (
	"strings"
	"testing"

	"go.starlark.net/starlark"
)

// universe are the universal names of Starlark in the library's version. A name added by a new version must be reviewed
// before scripts may use it.
const universe = "False None True abs all any bool bytes chr dict dir enumerate fail float getattr hasattr hash int len " +
	"list max min ord print range repr reversed set sorted str tuple type zip"

func TestUniverse(t *testing.T) {
	if got := strings.Join(starlark.Universe.Keys(), " "); got != universe {
		t.Errorf("the library has\n%s, want\n%s", got, universe)
	}
	for _, name := range append(strings.Fields(universe), "emit", "read_input") {
		emits(t, "x = "+name+"\nemit('there')", "", "there")
	}
}

// TestHermetic checks that what can be reached by its name is refused by other ways to it, too: those of modules of other implementations,
// and those that lead out of Python's sandboxes. Names that are not of the universe are undefined, and each type has only the methods of
// TestAttributes.
func TestHermetic(t *testing.T) {
	for source, want := range map[string]string{
		"open('/etc/passwd')":             "undefined: open",
		"__import__('os')":                "undefined: __import__",
		"json.decode('1')":                "undefined: json",
		"thread":                          "undefined: thread",
		"allow()":                         "undefined: allow",
		"import os":                       "got import, want",
		"load('@stdlib//json', 'json')":   "load is not available",
		"def f(): load('x', 'y')":         "load statement within a function",
		"x = load":                        "got load, want",
		"().__class__.__bases__":          "tuple has no .__class__ field or method",
		"emit.__globals__":                "builtin_function_or_method has no .__globals__ field or method",
		"def f(): pass\nf.__globals__":    "function has no .__globals__ field or method",
		"getattr(read_input, 'thread')":   "builtin_function_or_method has no .thread field or method",
		"getattr('', 'Str' + 'ing')":      "string has no .String field or method",
		"[].append.__self__":              "builtin_function_or_method has no .__self__ field or method",
		"len.x = 1":                       "can't assign to .x field of builtin_function_or_method",
		"'{0.__class__}'.format('')":      "attribute syntax x.y is not supported in replacement fields",
		"type('X', (), {})":               "type: got 3 arguments",
		"hash(len)":                       "hash: got builtin_function_or_method",
		"print('x', file = 1)":            "print: unexpected keyword argument \"file\"",
		"sorted([1], key = read_input)":   "read_input: got 1 arguments",
		"read_input(path = '/etc/hosts')": "read_input: unexpected keyword argument",
	} {
		fails(t, source, CodeEval, want)
	}
}

// TestAttributes checks that each type has exactly the known methods.
func TestAttributes(t *testing.T) {
	for value, want := range map[string]string{
		"''": "capitalize codepoint_ords codepoints count elem_ords elems endswith find format index isalnum isalpha isdigit " +
			"islower isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex " +
			"rpartition rsplit rstrip split splitlines startswith strip title upper",
		"b''": "elems",
		"[]":  "append clear extend index insert pop remove",
		"{}":  "clear get items keys pop popitem setdefault update values",
		"set()": "add clear difference discard intersection issubset issuperset pop remove symmetric_difference union " +
			"update",
		"()": "", "0": "", "1.5": "", "None": "", "True": "", "range(3)": "", "len": "", "emit": "", "read_input": "", "lambda: 1": "",
		"''.elems()": "", "''.codepoints()": "", "b''.elems()": "", "[].append": "", "1 << 100": "",
	} {
		emits(t, "emit(' '.join(dir("+value+")))", "", want)
		for name := range strings.FieldsSeq(want) { // a method is bound to its value and reveals nothing else
			emits(t, "emit(str(dir(getattr("+value+", '"+name+"'))))", "", "[]")
		}
	}
}
