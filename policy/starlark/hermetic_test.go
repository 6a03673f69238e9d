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

// TestHermetic checks that names outside the universe, except read_input and emit, are undefined: those of modules of
// other Starlark implementations, and those used to escape from Python sandboxes.
func TestHermetic(t *testing.T) {
	for _, name := range strings.Fields("os sys io open file input exec eval compile globals locals vars delattr setattr object " +
		"super classmethod staticmethod property isinstance issubclass callable id iter next map filter sum round pow divmod " +
		"format memoryview bytearray complex frozenset slice exit quit help breakpoint __builtins__ __import__ __name__ __file__ " +
		"__loader__ __spec__ builtins importlib subprocess socket ctypes time json math proto struct module gensym assert_ " +
		"catch partial glob native rule provider depset select package load_file env environ getenv cwd argv stdin stdout " +
		"stderr read write readline now sleep date random rand uuid urandom http fetch url requests download execute run " +
		"system shell popen spawn cancel thread request allow deny limit corral sandbox deps trace debug println printf " +
		"emit_bytes read_file write_file Emit EMIT readInput _emit") {
		if f := failing(t, "x = "+name, CodeEval, "undefined: "+name); f.Position != "script.star:1:5" {
			t.Errorf("%s: %v", name, f)
		}
	}
	for source, want := range map[string]string{
		"import os":                        "got import, want",
		"from os import path":              "got from, want",
		"with open('x') as f: 1":           "got with, want",
		"try: pass":                        "got try, want",
		"raise 1":                          "got raise, want",
		"global x":                         "got global, want",
		"def f():\n  yield 1":              "got yield, want",
		"async def f(): pass":              "got async, want",
		"del x":                            "got del, want",
		"assert 1":                         "got int literal, want newline",
		"1 is 1":                           "got is, want",
		"class X: pass":                    "got class, want",
		"`ls`":                             "unexpected input character '`'",
		"load('/etc/passwd', 'root')":      "load is not available",
		"load('@stdlib//json', 'json')":    "load is not available",
		"load('math.star', m = 'math')":    "load is not available",
		"def f(): load('x', 'y')":          "load statement within a function",
		"x = load":                         "got load, want",
		"''.__class__":                     "string has no .__class__ field or method",
		"().__class__.__bases__":           "tuple has no .__class__ field or method",
		"len.__self__":                     "builtin_function_or_method has no .__self__ field or method",
		"emit.__globals__":                 "builtin_function_or_method has no .__globals__ field or method",
		"emit.__call__":                    "builtin_function_or_method has no .__call__ field or method",
		"(lambda: 1).__code__":             "function has no .__code__ field or method",
		"def f(): pass\nf.__globals__":     "function has no .__globals__ field or method",
		"getattr(len, '__self__')":         "builtin_function_or_method has no .__self__ field or method",
		"getattr('', 'Str' + 'ing')":       "string has no .String field or method",
		"getattr(read_input, 'thread')":    "builtin_function_or_method has no .thread field or method",
		"[].append.__self__":               "builtin_function_or_method has no .__self__ field or method",
		"''.x = 1":                         "can't assign to .x field of string",
		"len.x = 1":                        "can't assign to .x field of builtin_function_or_method",
		"emit['x']":                        "unhandled index operation",
		"'{0.__class__}'.format('')":       "attribute syntax x.y is not supported in replacement fields",
		"'{0[a]}'.format({'a': 1})":        "element syntax a[i] is not supported in replacement fields",
		"'%(x)s' % emit":                   "format requires a mapping",
		"type('X', (), {})":                "type: got 3 arguments",
		"str(b'x', 'utf-8')":               "str: got 2 arguments",
		"int('1', base = '/etc')":          "int: for base, got string, want int",
		"hash(len)":                        "hash: got builtin_function_or_method",
		"print('x', file = 1)":             "print: unexpected keyword argument \"file\"",
		"read_input('/etc/passwd')":        "read_input: got 1 arguments",
		"read_input(path = '/etc/passwd')": "read_input: unexpected keyword argument",
		"emit('x', '/tmp/x')":              "emit: got 2 arguments",
		"sorted([1], key = read_input)":    "read_input: got 1 arguments",
		"{}.update(x = emit)\n{}.get(emit)\nrange(emit)": "range: for parameter 1: got builtin_function_or_method",
		"x = [emit]\nx[0](x)":                            "emit: got list, want string",
		"def f(): x\nf()\nx = 1":                         "global variable x referenced before assignment",
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

// TestNothingTellsMachinesApart checks that values reveal neither addresses nor seeds.
func TestNothingTellsMachinesApart(t *testing.T) {
	emits(t, "emit(repr([len, emit, read_input, ''.join, [].append, lambda: 1, range(2), 'ab'.elems(), b'ab'.elems()]))", "",
		`[<built-in function len>, <built-in function emit>, <built-in function read_input>, `+
			`<built-in method join of string value>, <built-in method append of list value>, <function lambda>, range(2), `+
			`"ab".elems(), b"ab".elems()]`)
	emits(t, "emit('%d %d %d' % (hash('a'), hash('corral'), hash(b'a')))", "", "97 -1354661673 3826002220")
}
