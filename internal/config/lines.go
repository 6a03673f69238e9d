package config

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// errLayout is a file that is not laid out in lines of entries.
var errLayout = errors.New("not a list of lines")

// lines makes the edit by putting lines in or taking lines out, where the tree says that they are. It understands what
// people write: a list of dashes, each at the beginning of a line. Who calls it looks at what came of it.
func (e Edit) lines(content []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	f := &layout{lines: strings.SplitAfter(string(content), "\n"), root: document.Content[0]}
	if last := len(f.lines) - 1; f.lines[last] == "" {
		f.lines = f.lines[:last]
	} else {
		f.lines[last] += "\n"
	}
	var err error
	if e.RemoveRepo != "" {
		err = f.remove(e)
	} else {
		err = f.add(e)
	}
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join(f.lines, "")), nil
}

// A layout is a file's lines, and its tree, which has their numbers from 1.
type layout struct {
	lines []string
	root  *yaml.Node
}

// add puts the entry after the last one, or the whole list at the end of the file.
func (f *layout) add(e Edit) error {
	list := valueOf(f.root, e.section())
	if list == nil {
		f.lines = append(f.lines, e.section()+":\n"+indented(e.Entry(), 2))
		return nil
	}
	if !f.plain(list) {
		return errLayout
	}
	end := f.last(f.after(e.section()))
	f.lines = slices.Insert(f.lines, end, indented(e.Entry(), list.Column-1))
	return nil
}

// remove takes out the entry and the comment above it, and with the last entry the key.
func (f *layout) remove(e Edit) error {
	list := valueOf(f.root, e.section())
	if list == nil || !f.plain(list) {
		return errLayout
	}
	at := e.index(list)
	if at < 0 {
		return errLayout
	}
	from, to := f.dash(list, list.Content[at]), f.after(e.section())
	if at+1 < len(list.Content) {
		to = f.dash(list, list.Content[at+1])
	}
	to = f.last(to)
	if len(list.Content) == 1 {
		from = f.key(e.section())
	} else {
		for from > 0 && f.comment(from-1, list.Column) {
			from--
		}
	}
	f.lines = slices.Delete(f.lines, from, to)
	return nil
}

// plain says whether a list has a dash for each entry, at the beginning of its line.
func (f *layout) plain(list *yaml.Node) bool {
	if list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 || len(list.Content) == 0 || f.root.Style&yaml.FlowStyle != 0 {
		return false
	}
	for _, n := range list.Content {
		if f.dash(list, n) < 0 {
			return false
		}
	}
	return true
}

// dash is the index of the line on which an entry of list begins, -1 if it is not found.
func (f *layout) dash(list, n *yaml.Node) int {
	for i := n.Line - 1; i >= list.Line-1 && i >= 0; i-- {
		if i < len(f.lines) && strings.HasPrefix(f.lines[i], strings.Repeat(" ", list.Column-1)+"-") {
			return i
		}
	}
	return -1
}

// key is the index of the line of a key of the root.
func (f *layout) key(name string) int {
	for i := 0; i+1 < len(f.root.Content); i += 2 {
		if f.root.Content[i].Value == name {
			return f.root.Content[i].Line - 1
		}
	}
	return -1
}

// after is the index of the line of the next key of the root, or of the end of the file.
func (f *layout) after(name string) int {
	at := f.key(name)
	for i := 0; i+1 < len(f.root.Content); i += 2 {
		if line := f.root.Content[i].Line - 1; line > at {
			return line
		}
	}
	return len(f.lines)
}

// last goes back from the line at end over those that are empty or comments, which are about what comes next.
func (f *layout) last(end int) int {
	for end > 0 {
		line := strings.TrimSpace(f.lines[end-1])
		if line != "" && !strings.HasPrefix(line, "#") && line != "..." {
			break
		}
		end--
	}
	return end
}

// comment says whether the line at i is a comment at that column.
func (f *layout) comment(i, column int) bool {
	return strings.HasPrefix(f.lines[i], strings.Repeat(" ", column-1)+"#")
}

func indented(s string, spaces int) string {
	var b bytes.Buffer
	for line := range strings.Lines(s) {
		b.WriteString(strings.Repeat(" ", spaces) + line)
	}
	return b.String()
}
