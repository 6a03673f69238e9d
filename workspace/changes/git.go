package changes

import (
	"bytes"
	"crypto/sha1" // git identifies contents by it
	"fmt"
	"strings"

	"corral/job"
)

// A version is a file before or after the change; the zero value stands for a missing file.
type version struct {
	mode string // git's
	data []byte
}

func (p *patcher) versions() (old, new version) {
	e := p.entry
	if needs(e.OldType) {
		old = version{gitMode(e.OldType, e.OldMode), p.sides[0].data}
	}
	if needs(e.Type) && e.Kind != job.ChangeDeleted {
		new = version{gitMode(e.Type, e.Mode), p.sides[1].data}
	}
	return old, new
}

// gitMode returns git's mode for a type and permissions.
func gitMode(t job.FileType, mode uint32) string {
	switch {
	case t == job.TypeLink:
		return "120000"
	case mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// blob returns git's hash of the content, 40 zeros for a missing file.
func (v version) blob() string {
	if v.mode == "" {
		return strings.Repeat("0", 2*sha1.Size)
	}
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(v.data), v.data)))
}

// file writes the patch of one file with git's extended header: git-diff(1), "Generating patch text with -p".
func (p *patcher) file(old, new version) error {
	path := p.entry.Path
	p.printf("diff --git %s %s\n", quote("a/"+path), quote("b/"+path))
	switch {
	case old.mode == "":
		p.printf("new file mode %s\n", new.mode)
	case new.mode == "":
		p.printf("deleted file mode %s\n", old.mode)
	case old.mode != new.mode:
		p.printf("old mode %s\nnew mode %s\n", old.mode, new.mode)
	}
	if p.entry.Kind == job.ChangeMode {
		return nil
	}
	p.printf("index %s..%s", old.blob(), new.blob())
	if old.mode == new.mode {
		p.printf(" %s", old.mode)
	}
	p.printf("\n")
	switch {
	case bytes.IndexByte(old.data, 0) >= 0 || bytes.IndexByte(new.data, 0) >= 0:
		return literal(p.w, new.data)
	case len(old.data)+len(new.data) == 0:
		return nil
	}
	p.printf("--- %s\n+++ %s\n", title("a/", path, old), title("b/", path, new))
	return hunks(p.w, old.data, new.data)
}

// printf writes to p.w, which keeps the first error.
func (p *patcher) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format, args...) }

// title returns a file name for the "---" or "+++" line.
func title(prefix, path string, v version) string {
	if v.mode == "" {
		return "/dev/null"
	}
	return quote(prefix + path)
}

// quote quotes a name as git does: unchanged, or as a C string if it has unusual bytes (quote_c_style in git's
// quote.c). A space counts as unusual here, because patch(1) does not handle it.
// Programs parse the result, so it is not the notation of internal/text.
func quote(name string) string {
	odd := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\' }
	plain := true
	for i := range len(name) {
		plain = plain && !odd(name[i])
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		letter := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c)
		switch {
		case letter >= 0:
			b.WriteByte('\\')
			b.WriteByte("abtnvfr\"\\"[letter])
		case odd(c) && c != ' ':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
