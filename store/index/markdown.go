package index

import (
	"bytes"
	"cmp"
	"strings"
)

const (
	aloneFence  = 1 << 10 // minimum size in bytes of a fenced block that becomes a separate chunk
	headingText = 60      // characters of a heading in a title
)

// markdown makes one chunk per section. A section that is too long is cut before a fenced block, at the end of a
// paragraph, or if these are too long themselves, between lines. A heading without text is joined with the section below
// it, and so are tiny sections if there are very many.
type markdown struct {
	s     *splitter
	g     lineGroup
	path  []heading
	bare  bool   // the group contains only headings
	joint string // title of the first of several sections in the group, "" if there is only one
	fence []byte
	block int          // index in the group of the line that opened a fence; -1 if none is open
	para  int          // number of lines of the group up to the last blank one
	kinds [2]blockKind // of the two preceding lines
}

type heading struct {
	level int
	text  string
}

// A kind classifies a line.
type blockKind uint8

const (
	kindBlank blockKind = iota
	kindText
	kindOther // cannot become a heading by an underline
)

func newMarkdown(s *splitter) *markdown { return &markdown{s: s, block: -1} }

func (m *markdown) line(l textLine) error {
	k := kindOther
	var err error
	switch level, text := atx(l.text); {
	case l.later || m.block >= 0:
	case level > 0:
		err = m.head(level, text, len(m.g.starts))
	case len(fenceOf(l.text)) > 0:
		if err = m.room(l); err == nil {
			m.fence, m.block, m.bare = append(m.fence[:0], fenceOf(l.text)...), len(m.g.starts), false
		}
	case m.underlined(l.text):
		level := 1
		if bytes.IndexByte(l.text, '-') >= 0 {
			level = 2
		}
		last := len(m.g.starts) - 1
		err = m.head(level, string(m.g.line(last)), last)
	case isBlank(l.text):
		k = kindBlank
	default:
		m.bare = false
		if c := bytes.TrimLeft(l.text, " \t")[0]; letterOrDigit(c) || c >= 0x80 || c == '`' || c == '[' {
			k = kindText
		}
	}
	if err == nil {
		err = m.room(l)
	}
	if err != nil {
		return err
	}
	m.kinds = [2]blockKind{m.kinds[1], k}
	return m.add(l)
}

// add adds a line to the group, which must have room for it.
func (m *markdown) add(l textLine) error {
	empty := isBlank(l.text)
	if empty && m.block < 0 && m.g.filled == 0 {
		m.g.drop(len(m.g.starts), 0)
		m.para = 0
		return nil
	}
	opened := m.block == len(m.g.starts)
	m.g.add(l)
	n := len(m.g.starts)
	if empty {
		m.para = n
	}
	if l.more {
		return m.flush(n, 0)
	}
	if m.block < 0 || opened || !m.closes(l.text) {
		return nil
	}
	begin := m.block
	m.block = -1
	if m.g.at(n)-m.g.at(begin) < aloneFence {
		return nil
	}
	if err := m.flush(begin, 0); err != nil {
		return err
	}
	return m.flush(len(m.g.starts), 0)
}

// closes reports whether a line closes the open fence.
func (m *markdown) closes(l []byte) bool {
	l = bytes.TrimSpace(l)
	return len(l) >= len(m.fence) && len(bytes.Trim(l, string(m.fence[:1]))) == 0
}

// room flushes until the line fits into the group.
func (m *markdown) room(l textLine) error {
	for !m.g.fits(len(l.text)) {
		n := len(m.g.starts)
		cut, next := n, len(l.text)
		switch {
		case m.block > 0:
			cut, next = m.block, 0
		case m.block == 0:
			next = 0
		case m.para < n && m.g.at(m.para) > maxChunk/2:
			cut, next = m.para, 0
		}
		if err := m.flush(cut, next); err != nil {
			return err
		}
	}
	return nil
}

// flush makes a chunk of the first k lines of the group. next is the size of the line that continues the text; if it is
// not 0, the last of the k lines stay in the group as far as they fit.
func (m *markdown) flush(k, next int) error {
	if m.g.fresh(k) {
		class := ""
		if m.block == 0 {
			class = Code
		}
		if err := m.s.chunk(m.g.text[:m.g.at(k)], m.g.first, cmp.Or(m.joint, m.title()), class); err != nil {
			return err
		}
	}
	m.joint = ""
	was := len(m.g.starts)
	m.g.keep(k, next)
	gone := was - len(m.g.starts)
	m.para = max(m.para-gone, 0)
	if m.block >= 0 {
		m.block = max(m.block-gone, 0)
	}
	return nil
}

func (m *markdown) end() error { return m.flush(len(m.g.starts), 0) }

// head starts the section of a heading, which is line k of the group.
func (m *markdown) head(level int, text string, k int) error {
	deeper := len(m.path) > 0 && level > m.path[len(m.path)-1].level
	switch {
	case m.bare && deeper && k == len(m.g.starts):
	case m.s.dense(m.g.at(k)):
		if m.joint == "" && m.g.fresh(k) {
			m.joint = m.title()
		}
	default:
		if err := m.flush(k, 0); err != nil {
			return err
		}
	}
	for len(m.path) > 0 && m.path[len(m.path)-1].level >= level {
		m.path = m.path[:len(m.path)-1]
	}
	if text = shortenTitle(text, headingText); text != "" {
		m.path = append(m.path, heading{level, text})
	}
	m.bare = true
	return nil
}

// title returns the path of headings. If it is too long, the first ones are left out.
func (m *markdown) title() string {
	t := ""
	for i := len(m.path) - 1; i >= 0; i-- {
		longer := m.path[i].text
		if t != "" {
			longer += " > " + t
		}
		if len(longer) > maxTitle-len("… > ") {
			return "… > " + t
		}
		t = longer
	}
	return t
}

// atx returns the level and the text of a heading that starts with number signs; level is 0 if there is none.
func atx(l []byte) (level int, text string) {
	b := bytes.TrimLeft(l, " ")
	if len(l)-len(b) > 3 {
		return 0, ""
	}
	for level < len(b) && b[level] == '#' {
		level++
	}
	if level == 0 || level > 6 || level < len(b) && !blankByte(b[level]) {
		return 0, ""
	}
	t := strings.TrimSpace(string(b[level:]))
	if end := strings.TrimRight(t, "#"); end == "" || strings.HasSuffix(end, " ") {
		t = strings.TrimSpace(end)
	}
	return level, t
}

// fenceOf returns the characters that open a fenced block, or nil. They may be indented, for blocks in lists.
func fenceOf(l []byte) []byte {
	b := bytes.TrimLeft(l, " \t")
	if len(b) < 3 || b[0] != '`' && b[0] != '~' {
		return nil
	}
	n := 0
	for n < len(b) && b[n] == b[0] {
		n++
	}
	if n < 3 || b[0] == '`' && bytes.IndexByte(b[n:], '`') >= 0 { // `code` in a sentence
		return nil
	}
	return b[:min(n, 32)]
}

// underlined reports whether l underlines the preceding line, which must be a paragraph of its own, as a heading.
func (m *markdown) underlined(l []byte) bool {
	if m.kinds != [2]blockKind{kindBlank, kindText} || len(m.g.starts) <= m.g.old {
		return false
	}
	b := bytes.TrimRight(bytes.TrimLeft(l, " "), " \t")
	return len(b) > 1 && len(b) < 200 && (b[0] == '=' || b[0] == '-') && len(bytes.Trim(b, string(b[:1]))) == 0
}
