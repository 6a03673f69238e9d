package scan

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// A git configuration names files of the repository that git reads or runs: included configuration, another directory of hooks,
// programs. What it names is sensitive, as what a link leads to is. These are the only files whose content is read, when they have
// changed: a read is an event for the watches of a scanner. An odd configuration misleads the report of its own repository alone.
//
// The parser is our own: that of go-git, which reads the configuration of users, would bring reflection and gob into the program that
// starts with each job.

// Bounds of one configuration with what it includes. Beyond them a report is Incomplete.
const (
	maxConfig  = 256 << 10 // bytes of a file
	maxConfigs = 16        // files
	maxNamed   = 32        // paths that it names
)

// A config is what a git configuration names.
type config struct {
	read  state // the file's when it was read
	named []*link
}

// programs lists the settings whose words may be paths of files that git runs, or reads and obeys, by section and key; an asterisk
// stands for any key. A word is such a path if it has a slash, and no character that a shell expands or that is usual in revisions and
// addresses.
var programs = wordSet(`
	core.fsmonitor core.pager core.editor core.sshcommand core.askpass core.gitproxy
	alias.* pager.* sequence.editor interactive.difffilter credential.helper gpg.program hook.command
	filter.clean filter.smudge filter.process diff.external diff.command diff.textconv merge.driver
	difftool.cmd difftool.path mergetool.cmd mergetool.path submodule.update uploadpack.packobjectshook
	trailer.command trailer.cmd remote.uploadpack remote.receivepack
`)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

var configRows = rowsOf(GitDir, "config", "config.worktree")

// configure reads f, a git configuration in the directory n, if its state is another one than when it was read.
func (w *walk) configure(f *file, n *node, st *stat) {
	if !configRows[f.row] {
		return
	}
	at := w.here(f.name)
	dir, _ := at.split()
	now := state{id: st.id, mode: st.mode, size: st.size, ctime: st.ctime}
	if st.is(unix.S_IFLNK) {
		y, _ := w.s.follow(w.s.places[at.place].path, at.path, nil, w.overdue)
		now.to = y.target()
		at = y.at
	}
	if f.config != nil && f.config.read == now || w.expired() {
		return
	}
	r := &reading{w: w, git: w.s.absolute(dir), tree: w.s.workTree(dir), hooks: n.zone.kids["hooks"].dir}
	if (st.is(unix.S_IFREG) || now.to != target{}) && !r.file(at) {
		w.miss(f.name)
	}
	if w.late { // the next pass reads it
		return
	}
	before := f.config
	f.config = &config{read: now, named: r.named}
	for _, l := range r.named {
		if l.from == "" {
			l.from = r.git
			if !strings.HasPrefix(l.to, "/") {
				l.to = r.tree + "/" + l.to
			}
		}
		l.was = before.targetOf(l)
	}
}

// targetOf returns the target that a link named in the same way had.
func (c *config) targetOf(l *link) *target {
	if c != nil {
		for _, old := range c.named {
			if old.from == l.from && old.to == l.to {
				return old.was
			}
		}
	}
	return nil
}

// absolute returns the path of a spot in the file system.
func (s *Scanner) absolute(at spot) string {
	return strings.TrimSuffix(s.places[at.place].path+"/"+at.path, "/")
}

// shown returns the path of a spot as reports have it: one in another place is absolute.
func (s *Scanner) shown(at spot) string {
	if at.place == s.own {
		return at.path
	}
	return s.absolute(at)
}

// workTree returns where git runs programs for the git directory at dir, from there: in the work tree. core.worktree may say otherwise.
func (s *Scanner) workTree(dir spot) string {
	switch _, name := dir.split(); {
	case IsDotGit(name):
		return ".."
	case dir.place == commonPlace && dir.path == "":
		return s.places[repoPlace].path
	}
	return "."
}

// A reading is of one configuration, with what it includes.
type reading struct {
	w     *walk
	git   string // absolute path of the git directory
	tree  string // the work tree, from there
	hooks *zone  // the rules for a directory of hooks
	files int
	named []*link // those without a directory are relative to the work tree
}

// file reads one file. It returns false if something may have been missed.
func (r *reading) file(at spot) bool {
	if r.files++; r.files > maxConfigs || r.w.expired() {
		return false
	}
	fd, err := r.w.s.openPath(at, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil || !st.is(unix.S_IFREG) {
		return err == nil
	}
	text, err := readAtMost(fd, maxConfig+1)
	dir, _ := at.split()
	whole := true
	eachSetting(text, func(section, key, value string) {
		whole = r.setting(r.w.s.absolute(dir), section, key, value) && whole
	})
	return err == nil && whole && len(text) <= maxConfig
}

// readAtMost reads a file up to a number of bytes.
func readAtMost(fd, most int) (string, error) {
	b := make([]byte, most)
	n := 0
	for n < most {
		got, err := unix.Read(fd, b[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return string(b[:n]), err
		case got == 0:
			return string(b[:n]), nil
		}
		n += got
	}
	return string(b), nil
}

// setting notes what a setting in a file of the directory dir names. It returns false if something may have been missed.
func (r *reading) setting(dir, section, key, value string) bool {
	switch name := section + "." + key; {
	case name == "include.path", name == "includeif.path":
		return r.include(dir, value)
	case name == "core.hookspath":
		return r.add(&link{to: value, zone: r.hooks, trackDir: true})
	case name == "core.worktree":
		r.tree = value
	case name == "core.attributesfile", name == "core.excludesfile":
		return r.add(&link{to: value})
	case programs[name], programs[section+".*"]:
		whole := true
		for word := range strings.FieldsSeq(strings.TrimPrefix(value, "!")) {
			if word = strings.Trim(word, `'";`); strings.Contains(word, "/") && !strings.ContainsAny(word, "$`*?<>|&(){}=:@~%,^") {
				whole = r.add(&link{to: word}) && whole
			}
		}
		return whole
	}
	return true
}

func (r *reading) add(l *link) bool {
	if strings.HasPrefix(l.to, "~") {
		return true // a home directory
	}
	if len(r.named) >= maxNamed {
		return false
	}
	r.named = append(r.named, l)
	return true
}

// include reads a file that one of the directory dir includes.
func (r *reading) include(dir, path string) bool {
	if !r.add(&link{from: dir, to: path, include: true}) {
		return false
	}
	y, _ := r.w.s.follow(dir, path, nil, r.w.overdue)
	if y.end != arrived {
		return y.end == nowhere
	}
	return r.file(y.at)
}

// lead follows what a git configuration names, and has directories behind links examined. reported tells that f itself is reported.
func (w *walk) lead(f *file, reported bool) {
	if f.link != nil {
		w.enqueue(f, f.link, string(w.path)+f.name, reported)
	}
	if f.config == nil {
		return
	}
	for _, l := range f.config.named {
		at := w.here(f.name)
		l.way = w.follow(f.name, l.from, l.to)
		if l.way.at.path != "" {
			at = l.way.at
		}
		now := l.way.target()
		changed := l.was != nil && w.targetDiffers(*l.was, now)
		if changed && !w.silent {
			w.take(w.s.shown(at), f.row)
		}
		if changed && l.include { // it may name other files: read it all again
			f.config.read, w.gaps = state{}, true
		}
		l.was = &now
		w.enqueue(f, l, w.s.shown(at), reported || changed)
	}
}

// targetDiffers is like differs, for what a link leads to.
func (w *walk) targetDiffers(was, now target) bool {
	if was == now {
		return now.ctime != 0 && (!w.s.exact || coarse(now.ctime)) && w.after(now.ctime)
	}
	return was.id != now.id || w.after(now.ctime)
}

// eachSetting calls note for each setting of a git configuration, with section and key in lower case, as git-config(1) describes the
// syntax. A subsection is left out. A line that git would refuse is passed over.
func eachSetting(text string, note func(section, key, value string)) {
	section := ""
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	for text != "" {
		line := ""
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimLeft(line, " \t")
		if head, ok := strings.CutPrefix(line, "["); ok {
			var rest string
			section, rest = sectionOf(head)
			line = strings.TrimLeft(rest, " \t")
		}
		end := strings.IndexFunc(line, func(c rune) bool {
			return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		})
		if end < 0 {
			continue // a key without a value, which is true
		}
		key := strings.ToLower(line[:end])
		value, ok := strings.CutPrefix(strings.TrimLeft(line[end:], " \t"), "=")
		if !ok || key == "" {
			continue
		}
		value, text = valueOf(value, text)
		note(section, key, value)
	}
}

// sectionOf returns the name in the head of a section, which follows a bracket, and what follows the head.
func sectionOf(head string) (name, rest string) {
	quoted := false
	for i := 0; i < len(head); i++ {
		switch {
		case quoted && head[i] == '\\':
			i++
		case head[i] == '"':
			quoted = !quoted
		case head[i] == ']' && !quoted:
			name = head[:i]
			if end := strings.IndexAny(name, " \t.\""); end >= 0 {
				name = name[:end]
			}
			return strings.ToLower(name), head[i+1:]
		}
	}
	return "", ""
}

// valueOf decodes a value that begins in a line and may go on in those of text. It returns the rest of text.
func valueOf(line, text string) (value, rest string) {
	var b strings.Builder
	quoted, kept := false, 0 // kept: blanks at the end after this length are dropped
	for line = strings.TrimLeft(line, " \t"); line != ""; line = line[1:] {
		c := line[0]
		switch {
		case c == '\\' && len(line) == 1:
			next, after, _ := strings.Cut(text, "\n")
			line, text = line+next, after
			continue
		case c == '\\':
			line = line[1:]
			b.WriteString(map[byte]string{'n': "\n", 't': "\t", 'b': "\b"}[line[0]])
			if !strings.ContainsRune("ntb", rune(line[0])) {
				b.WriteByte(line[0])
			}
			kept = b.Len()
			continue
		case c == '"':
			quoted = !quoted
			kept = b.Len()
			continue
		case !quoted && (c == '#' || c == ';'):
			return b.String()[:kept], text
		}
		b.WriteByte(c)
		if quoted || c != ' ' && c != '\t' {
			kept = b.Len()
		}
	}
	return b.String()[:kept], text
}
