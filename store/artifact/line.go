package artifact

import (
	"strconv"
	"unicode/utf8"
)

// maxLine is the maximum number of characters shown of a line.
const maxLine = 500

// A line is the kept part of a line: at most MaxLine characters, and how many there were beyond.
type line struct {
	text    []byte // valid UTF-8
	chars   int    // number of characters in text
	dropped int64
	number  int64 // set only where lines are kept by number; 0 is none
}

func (l *line) reset() { *l = line{text: l.text[:0]} }

// copyFrom makes l a copy of o, reusing l's memory.
func (l *line) copyFrom(o *line) {
	*l = line{text: append(l.text[:0], o.text...), chars: o.chars, dropped: o.dropped}
}

// add appends the next part of the line.
func (l *line) add(text []byte) {
	room := maxLine - l.chars
	if len(text) <= room { // each character has at least one byte
		l.text = append(l.text, text...)
		l.chars += utf8.RuneCount(text)
		return
	}
	cut := 0
	for ; room > 0 && cut < len(text); room-- {
		_, n := utf8.DecodeRune(text[cut:])
		cut += n
	}
	l.text = append(l.text, text[:cut]...)
	l.chars = maxLine - room
	l.dropped += int64(utf8.RuneCount(text[cut:]))
}

// appendTo appends the line to dst as it is shown.
func (l *line) appendTo(dst []byte) []byte {
	dst = append(dst, l.text...)
	if l.dropped > 0 {
		dst = append(dst, "… (+"...)
		dst = strconv.AppendInt(dst, l.dropped, 10)
		dst = append(dst, ") [truncated]"...)
	}
	return dst
}
