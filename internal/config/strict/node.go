package strict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"corral/internal/nearest"
	"corral/internal/text"
)

// A Node is a value in a file, with its position. The zero Node is a value that is absent. An alias is a Node of its own
// kind: what it stands for is never looked at, so a file of a kilobyte cannot become one of a gigabyte.
type Node struct {
	reader *Reader
	file   string
	order  int  // of the file among those that were read
	user   bool // the file is a user's
	yaml   *yaml.Node
}

// Present returns whether the value is in a file.
func (n Node) Present() bool { return n.yaml != nil }

// IsMapping returns whether the value is present and a mapping.
func (n Node) IsMapping() bool { return n.yaml != nil && n.yaml.Kind == yaml.MappingNode }

// At returns the value of a key, and of a key in that value for each further one. It is absent if n is not a mapping.
func (n Node) At(keys ...string) Node {
	for _, key := range keys {
		if !n.IsMapping() {
			return Node{}
		}
		found := Node{}
		for i := 0; i+1 < len(n.yaml.Content); i += 2 {
			if n.yaml.Content[i].Value == key {
				found = n.child(n.yaml.Content[i+1])
				break
			}
		}
		n = found
	}
	return n
}

// Items returns the entries of a list, nil if n is not a list.
func (n Node) Items() []Node {
	if n.yaml == nil || n.yaml.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]Node, len(n.yaml.Content))
	for i, item := range n.yaml.Content {
		items[i] = n.child(item)
	}
	return items
}

// Text returns the text of a scalar, "" for everything else.
func (n Node) Text() string {
	if n.yaml == nil || n.yaml.Kind != yaml.ScalarNode {
		return ""
	}
	return n.yaml.Value
}

// Lines returns the first and the last line of the value, from 1. A scalar is taken to end on the line where it begins.
func (n Node) Lines() (first, last int) {
	if n.yaml == nil {
		return 0, 0
	}
	first, last = n.yaml.Line, n.yaml.Line
	for _, child := range n.yaml.Content {
		_, end := n.child(child).Lines()
		last = max(last, end)
	}
	return first, last
}

// Column returns the column of the value, from 1: of a mapping or list in block style that of its first key or dash. It is 0 for
// an absent value.
func (n Node) Column() int {
	if n.yaml == nil {
		return 0
	}
	return n.yaml.Column
}

// Before returns whether the file of n was read before the file of o. An absent value is before every file but the first.
func (n Node) Before(o Node) bool { return n.order < o.order }

// Failf records a mistake at the position of the value.
func (n Node) Failf(format string, args ...any) {
	e := n.error(fmt.Sprintf(format, args...))
	n.reader.errs = append(n.reader.errs, e)
}

// Place returns file:line:column, for messages.
func (n Node) Place() string { return n.error("").place() }

func (n Node) error(message string) *Error {
	e := &Error{File: n.file, Message: message, order: n.order}
	if n.yaml != nil {
		e.Line, e.Column = n.yaml.Line, n.yaml.Column
	}
	return e
}

func (n Node) child(y *yaml.Node) Node {
	n.yaml = y
	return n
}

// scalar returns whether n is a scalar of one of these YAML types.
func (n Node) scalar(tags ...string) bool {
	return n.yaml.Kind == yaml.ScalarNode && slices.Contains(tags, n.yaml.ShortTag())
}

// mustBe records that a value has the wrong type or form. name is its key; "" is the whole file.
func (n Node) mustBe(name, what string) {
	if name == "" {
		name = "the file"
	} else {
		name = "`" + Shown(name) + "`"
	}
	n.Failf("%s: must be %s, got %s", name, what, n.found())
}

// Unknown records a word that is not one of known.
func (n Node) Unknown(what, word string, known []string) {
	if near := nearest.Of(word, known); near != "" {
		n.Failf("unknown %s `%s`: did you mean `%s`?", what, Shown(word), near)
		return
	}
	n.Failf("unknown %s `%s`: must be one of %s", what, Shown(word), strings.Join(known, ", "))
}

// found describes the value for an error.
func (n Node) found() string {
	switch n.yaml.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.yaml.ShortTag() {
	case "!!null":
		return "no value"
	case "!!str":
		return strconv.Quote(Shorten(n.yaml.Value))
	}
	return Shown(n.yaml.Value)
}

// Shown returns s as errors show it: escaped and cut.
func Shown(s string) string { return text.Escape(Shorten(s)) }

// Shorten cuts s to what errors repeat of a value.
func Shorten(s string) string { return text.Cut(s, 60) }

// File returns the path of the file that has the value.
func (n Node) File() string { return n.file }
