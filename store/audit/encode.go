package audit

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"corral/internal/text"
	"corral/job"
)

// An encoder writes a record without encoding/json: its fields have a fixed order, and the first ones a fixed form,
// so that they can be read without a JSON parser.
type encoder struct{ b []byte }

func (e *encoder) name(name string) {
	if n := len(e.b); n > 0 && e.b[n-1] != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(append(append(e.b, '"'), name...), `":`...)
}

func (e *encoder) number(name string, n int64) {
	e.name(name)
	e.b = strconv.AppendInt(e.b, n, 10)
}

func (e *encoder) flag(name string, v bool) {
	if v {
		e.name(name)
		e.b = append(e.b, "true"...)
	}
}

// word writes text chosen by corral, which needs no escapes.
func (e *encoder) word(name, s string) {
	e.name(name)
	e.b = append(append(append(e.b, '"'), s...), '"')
}

// text writes s, cut to limit bytes; it omits an empty text.
func (e *encoder) text(name, s string, limit int) {
	if s == "" {
		return
	}
	e.name(name)
	e.b = append(e.b, '"')
	e.b = appendCut(e.b, s, limit)
	e.b = append(e.b, '"')
}

// path writes a path. If the text cannot stand for it, because it is not UTF-8 or was cut, the field name_base64 has its
// bytes: otherwise two paths could look the same.
func (e *encoder) path(name, s string) {
	e.text(name, s, maxPath)
	if !utf8.ValidString(s) || len(appendText(nil, s)) > maxPath {
		e.word(name+"_base64", base64.StdEncoding.EncodeToString([]byte(s[:min(len(s), maxPathBytes)])))
	}
}

func (e *encoder) open(name string) {
	e.name(name)
	e.b = append(e.b, '{')
}

func (e *encoder) close() { e.b = append(e.b, '}') }

// ellipsis ends a text that was cut.
const ellipsis = "…"

// appendCut appends s like appendText, cut to limit bytes. The limit counts escaped bytes: otherwise a text of
// control characters would take six times as much.
func appendCut(b []byte, s string, limit int) []byte {
	begin, fits := len(b), len(b)
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		if b = appendText(b, s[:n]); len(b)-begin > limit {
			return append(b[:fits], ellipsis...)
		}
		if len(b)-begin <= limit-len(ellipsis) {
			fits = len(b)
		}
		s = s[n:]
	}
	return b
}

// appendText escapes s for a JSON string. Characters that a terminal would not show are escaped, too, so that lines
// can be printed; invalid UTF-8 becomes U+FFFD. One byte becomes six at most.
// Which characters are escaped is decided here: lines are hashed, so the way they are written must not change.
func appendText(b []byte, s string) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case r < 0x7f && r >= ' ':
			b = append(b, byte(r))
		case unicode.IsPrint(r):
			b = append(b, s[:n]...)
		case r > 0xffff:
			b = text.AppendUnit(b, 0xd800+(r-0x10000)>>10)
			b = text.AppendUnit(b, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b = text.AppendUnit(b, r)
		}
		s = s[n:]
	}
	return b
}

// timeLayout is RFC 3339 with a fixed number of digits.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// appendLine appends the record that follows p, without its newline: the first fixed fields, then body.
func appendLine(b []byte, p Position, now time.Time, body []byte) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, p.Seq+1, 10)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, p.Hash[:])
	b = append(b, `","time":"`...)
	b = now.UTC().AppendFormat(b, timeLayout)
	b = append(b, `",`...)
	return append(append(b, body...), '}')
}

// claimed writes a front-end's claims about a request.
func (e *encoder) claimed(c job.Claim) {
	e.open("claimed")
	for _, f := range c.Fields() {
		e.text(f.Name, *f.Value, f.Max)
	}
	e.close()
}
