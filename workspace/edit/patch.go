package edit

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// A patch is the part of a unified diff that is about one file.
type patch struct {
	path    string // that the patch names, "" if it names none
	creates bool   // the file does not exist before
	hunks   []hunk
}

// A hunk is one hunk of a patch.
type hunk struct {
	header string
	line   int // where the patch expects it, 1-based; 0 if the header does not say
	lines  []hunkLine
}

// A hunkLine is a line of a hunk: kept (' '), deleted ('-') or added ('+').
type hunkLine struct {
	op   byte
	text string // without its end
	bare bool   // it has no end: "\ No newline at end of file"
}

// maxHunks bounds the number of hunks of all files: each one is looked for in the whole file.
const maxHunks = 500

// parsePatch parses a unified diff of one or several files. The numbers of lines in the headers of hunks are not relied upon, because
// they are often wrong in patches written by hand; the lines themselves are.
func parsePatch(s string) ([]*patch, error) {
	p := &patch{}
	list, hunks := []*patch{p}, 0
	all := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i := 0; i < len(all); i++ {
		line := strings.TrimSuffix(all[i], "\r")
		named := isHeader(all, i)
		if len(p.hunks) > 0 && (named || strings.HasPrefix(line, "diff --git ")) {
			p = &patch{}
			list = append(list, p)
		}
		var err error
		switch {
		case named:
			err = p.header(line, strings.TrimSuffix(all[i+1], "\r"))
			i++
		case strings.HasPrefix(line, "@@"):
			p.open(line)
			if hunks++; hunks > maxHunks {
				err = fmt.Errorf("patch has more than %d hunks", maxHunks)
			}
		case len(p.hunks) == 0: // "diff --git", "index" and the like
			if strings.HasPrefix(line, "deleted file") || strings.HasPrefix(line, "rename ") || strings.HasPrefix(line, "GIT binary") {
				err = fmt.Errorf("patch: %q cannot be applied: a patch changes the text of files; delete or rename files with a command", line)
			}
		default:
			err = p.last().add(line)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, p := range list {
		if err := p.end(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// end checks a patch that is complete.
func (p *patch) end() error {
	if len(p.hunks) == 0 {
		return errors.New("patch has no hunk: a unified diff has lines that begin with @@, and after each of them lines that begin with ' ', '-' or '+'")
	}
	for i := range p.hunks {
		if err := p.hunks[i].end(); err != nil {
			return err
		}
	}
	return nil
}

// isHeader reports whether a line and the next are the names of a file. Within a hunk, they could be a deleted and an
// added line, so the line after them must begin a hunk.
func isHeader(all []string, i int) bool {
	return strings.HasPrefix(all[i], "--- ") && i+2 < len(all) && strings.HasPrefix(all[i+1], "+++ ") && strings.HasPrefix(all[i+2], "@@")
}

func (p *patch) last() *hunk { return &p.hunks[len(p.hunks)-1] }

const devNull = "/dev/null"

func (p *patch) header(old, new string) error {
	from, to := nameOf(old[4:], "a/"), nameOf(new[4:], "b/")
	if to == devNull {
		return fmt.Errorf("patch deletes the file %s: delete it with a command", from)
	}
	p.path, p.creates = to, from == devNull
	return nil
}

// nameOf returns the name of a file without git's prefix and without the time that other programs append.
func nameOf(s, prefix string) string {
	name, _, _ := strings.Cut(s, "\t")
	if name = strings.TrimSpace(name); name == devNull {
		return name
	}
	return strings.TrimPrefix(name, prefix)
}

// names reports whether the patch is for the file at name, or names none.
func (p *patch) names(name, shown string) bool {
	if p.path == "" {
		return true
	}
	at := path.Clean(p.path)
	return at == path.Clean(name) || at == shown || strings.HasSuffix(path.Clean("/"+name), "/"+at) || strings.HasSuffix("/"+at, "/"+shown)
}

// open begins a hunk. Its header is "@@ -LINE,COUNT +LINE,COUNT @@ …"; without numbers, the hunk is looked for everywhere.
func (p *patch) open(line string) {
	h := hunk{header: line}
	if _, rest, ok := strings.Cut(line, "-"); ok {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		h.line, _ = strconv.Atoi(digits) // 0 if there is no number
	}
	p.hunks = append(p.hunks, h)
}

func (h *hunk) add(line string) error {
	switch {
	case line == "": // an empty line whose space was stripped
		h.lines = append(h.lines, hunkLine{op: ' '})
	case line[0] == ' ' || line[0] == '-' || line[0] == '+':
		h.lines = append(h.lines, hunkLine{op: line[0], text: line[1:]})
	case line[0] == '\\' && len(h.lines) > 0:
		h.lines[len(h.lines)-1].bare = true
	default:
		return fmt.Errorf("patch: hunk %q: the line %q begins neither with ' ', '-' nor '+'", h.header, clip(line))
	}
	return nil
}

// end checks a hunk that is complete, and drops empty lines at its end: they are rather the end of the patch.
func (h *hunk) end() error {
	for n := len(h.lines); n > 0 && h.lines[n-1] == (hunkLine{op: ' '}); n-- {
		h.lines = h.lines[:n-1]
	}
	for _, l := range h.lines {
		if l.op != ' ' {
			return nil
		}
	}
	return fmt.Errorf("patch: hunk %q changes nothing: it has no line that begins with '-' or '+'", h.header)
}

// old returns the lines of the file that the hunk keeps or deletes.
func (h *hunk) old() []hunkLine {
	var list []hunkLine
	for _, l := range h.lines {
		if l.op != '+' {
			list = append(list, l)
		}
	}
	return list
}
