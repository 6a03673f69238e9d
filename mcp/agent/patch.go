package agent

import (
	"bytes"
	"io"
	"strings"
)

// binaryMark is the line after which git's patches have the content of a binary file. No line of a text begins so: each begins with
// a blank, a sign or a backslash.
const binaryMark = "GIT binary patch\n"

// A patchText passes on a patch without the contents of binary files, such as caches of compiled code: a model cannot read them, and
// one can be longer than all other changes. It writes their sizes instead. Of a line of a text it keeps nothing, however long it is.
type patchText struct {
	w       io.Writer
	line    []byte // what has been read of a line that is not passed on as it comes
	through bool   // the rest of the line is passed on
	binary  bool   // the lines are those of a binary file
}

func (t *patchText) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			part = rest[:end+1]
		}
		if err := t.add(part, part[len(part)-1] == '\n'); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[len(part):]
	}
	return len(p), nil
}

// add takes a part of a line, which may be its last.
func (t *patchText) add(part []byte, last bool) error {
	if t.through {
		t.through = !last
		_, err := t.w.Write(part)
		return err
	}
	t.line = append(t.line, part...)
	switch {
	case t.binary && !last, !t.binary && !last && strings.HasPrefix(binaryMark, string(t.line)):
		return nil // not known yet
	case t.binary:
		return t.binaryLine()
	case string(t.line) == binaryMark:
		t.binary, t.line = true, t.line[:0]
		return nil
	}
	t.through = !last
	return t.flush(t.line)
}

// binaryLine takes a line of a binary file's patch, or the first one after it.
func (t *patchText) binaryLine() error {
	line := string(t.line)
	if strings.HasPrefix(line, "diff --git ") {
		t.binary = false
		return t.flush(t.line)
	}
	if size, ok := strings.CutPrefix(line, "literal "); ok {
		return t.flush([]byte("binary, " + strings.TrimSuffix(size, "\n") + " bytes, not shown\n"))
	}
	t.line = t.line[:0]
	return nil
}

// flush writes a text in place of the line.
func (t *patchText) flush(text []byte) error {
	_, err := t.w.Write(text)
	t.line = t.line[:0]
	return err
}
