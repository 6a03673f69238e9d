package starlark

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDecodeFailure checks that DecodeFailure accepts what the program writes, and nothing else.
func TestDecodeFailure(t *testing.T) {
	whole := &Failure{
		Code: CodeEval, Message: "it's \"<so>\" & ü", Position: "script.star:1:2",
		Backtrace: "Traceback\n  script.star:1:2: in <toplevel>\nError: x",
	}
	for _, f := range []*Failure{whole, TimedOut(time.Second), OutOfMemory(), {Code: CodeRequest, Message: "x"}, {Code: CodeOutput, Message: "x", Position: "p"}} {
		var wire bytes.Buffer
		if err := f.write(&wire); err != nil {
			t.Fatal(err)
		}
		if got, ok := DecodeFailure(wire.Bytes()); !ok || *got != *f {
			t.Errorf("%s was decoded as %v", wire.String(), got)
		}
		if got := Ended(1, wire.Bytes()); *got != *f {
			t.Errorf("%s: ended with %v", wire.String(), got)
		}
	}
	const good = `{"code":"EVAL_ERROR","message":"m","details":{"position":"p","backtrace":"b"}}`
	for _, text := range []string{
		good, good + "\n", good + "\n\n", "\n" + good,
		"2026/11/21 19:34:02 Starlark failed to allocate 4GB address space: cannot allocate memory. Integer performance may suffer.\n" + good + "\n",
		"\xff\n" + good, strings.Repeat("x", maxFailure) + "\n" + good,
	} {
		if f := Ended(1, []byte(text)); f.Code != CodeEval || f.Message != "m" || f.Position != "p" || f.Backtrace != "b" || f.Died {
			t.Errorf("%.200s was decoded as %+v", text, f)
		}
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"no JSON":              "panic: oh",
		"half of it":           good[:len(good)-1],
		"two":                  good + good,
		"something after it":   good + "x",
		"something before it":  "x" + good,
		"a line after it":      good + "\nx",
		"two lines of it":      strings.Replace(good, ",", "\n,", 1),
		"of no program":        strings.Replace(good, "EVAL_ERROR", CodeInternal, 1),
		"C1 controls":          strings.Replace(good, `"m"`, "\"a\u009bb\"", 1),
		"text turned around":   strings.Replace(good, `"m"`, "\"a\u202eb\"", 1),
		"turned in the trace":  strings.Replace(good, `"b"`, "\"a\u2066b\"", 1),
		"memory, as we say it": "out of memory",
		"memory, as Go does":   "fatal error: runtime: out of memory",
		"a list":               "[" + good + "]",
		"null":                 "null",
		"another code":         strings.Replace(good, "EVAL_ERROR", "FINE", 1),
		"a code in lower case": strings.Replace(good, "EVAL_ERROR", "eval_error", 1),
		"no code":              `{"message":"m"}`,
		"no message":           `{"code":"TIMEOUT"}`,
		"another field":        strings.Replace(good, `"message"`, `"x":1,"message"`, 1),
		"another detail":       strings.Replace(good, `"position"`, `"stdout":"x","position"`, 1),
		"a number":             strings.Replace(good, `"m"`, "1", 1),
		"details of text":      `{"code":"TIMEOUT","message":"m","details":"x"}`,
		"control characters":   strings.Replace(good, `"m"`, `"\u001b[31m"`, 1),
		"a line feed":          strings.Replace(good, `"m"`, `"a\nb"`, 1),
		"in the position":      strings.Replace(good, `"p"`, `"a\nb"`, 1),
		"in the back-trace":    strings.Replace(good, `"b"`, `"a\rb"`, 1),
		"no UTF-8":             strings.Replace(good, `"m"`, "\"\xff\"", 1),
		"a long message":       strings.Replace(good, `"m"`, `"`+strings.Repeat("m", MaxMessage+1)+`"`, 1),
		"a long back-trace":    strings.Replace(good, `"b"`, `"`+strings.Repeat("b", MaxBacktrace+1)+`"`, 1),
		"much of it":           good + strings.Repeat(" ", maxFailure),
		"deep":                 strings.Repeat("[", 20_000),
	} {
		if f, ok := DecodeFailure([]byte(text)); ok {
			t.Errorf("%s: %.200s was decoded as %v", name, text, f)
		}
		if f := Ended(1, []byte(text)); f == nil || f.Code != CodeInternal || f.Message != "the interpreter failed, and did not say why" || !f.Died {
			t.Errorf("%s: ended with %v", name, f)
		}
	}
}

// TestEscapes checks that the longest possible failure is decoded, even if all of it is escaped.
func TestEscapes(t *testing.T) {
	long := "x" + strings.Repeat("\u2028", (MaxMessage-2)/3) + "x" // three bytes each, six in JSON
	f := &Failure{Code: CodeEval, Message: long, Position: strings.Repeat(`"`, MaxMessage), Backtrace: strings.Repeat("\n", MaxBacktrace)}
	var wire bytes.Buffer
	if err := f.write(&wire); err != nil {
		t.Fatal(err)
	}
	if got, ok := DecodeFailure(wire.Bytes()); !ok || *got != *f {
		t.Errorf("%d bytes were not decoded", wire.Len())
	}
}

func FuzzDecodeFailure(f *testing.F) {
	f.Add([]byte(`{"code":"EVAL_ERROR","message":"m","details":{"position":"p","backtrace":"b"}}`))
	f.Add([]byte(`{"code":"TIMEOUT","message":"\u2028"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := DecodeFailure(text)
		if !ok {
			return
		}
		var wire bytes.Buffer
		if err := got.write(&wire); err != nil {
			t.Fatal(err)
		}
		if again, ok := DecodeFailure(wire.Bytes()); !ok || *again != *got {
			t.Errorf("%q was decoded as %#v, and that as %#v", text, got, again)
		}
		if d, err := json.Marshal(got.Details()); err != nil || len(d) > maxFailure {
			t.Error(fmt.Sprint(err), len(d))
		}
	})
}
