// Package example reads the examples that pages of the documentation have, and compares what they show with what a
// program answers. Only tests import it.
//
// An example is a fenced block. After its language the info string says what it is, so that pages look as they always
// did:
//
//	json request          the arguments of a call of the page's tool
//	json request NAME     the same of another tool
//	json reply            structuredContent of the result, which is no error
//	json reply error      the same of a result with isError
//	text reply            the text of the result; it, too, with error or without
//	text rpc              messages, one a line: "→ " is sent, "← " comes, in this order
//	… file NAME           a file that is there in the repository
//	… config, … rules     sections of the configuration, and the operator's rules
//
// A heading of level three that begins with one of the Kinds says of which kind the examples below it are.
//
// What differs from run to run is written as it once was. A Matcher knows by the names of keys what that is, takes down
// what it stands for, and puts that in its place where a later request has it. "…" in a text stands for any text, as a
// key for any further keys, and as the last element of a list for any further elements.
package example

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kinds of examples that a page has.
const (
	Valid   = "valid"   // it was done
	Refused = "refused" // it was not begun: the arguments or the policy are against it
	Timeout = "timeout" // it took longer than it may
	Error   = "error"   // it was begun and went wrong, or cannot be done
)

// Kinds returns all of them.
func Kinds() []string { return []string{Valid, Refused, Timeout, Error} }

// Roles of a block.
const (
	Request = "request"
	Reply   = "reply"
	RPC     = "rpc"
	File    = "file"
	Config  = "config"
	Rules   = "rules"
)

// A Page is what of a page is examples.
type Page struct {
	Name   string // the file's name without .md
	Blocks []Block
}

// A Block is one fenced block.
type Block struct {
	Line     int    // of the page, where the fence opens
	Kind     string // "" below no such heading
	Language string // "json"
	Role     string
	Name     string // of a request's tool, or of a file; "" if the fence has none
	Failed   bool   // a reply with isError
	Text     string // ends in a newline
}

// Read reads a page. A fence that is no example is an error on a page where strict says that all are: it would be
// something that a page shows and nobody has tried.
func Read(file string, strict bool) (*Page, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(strings.TrimSuffix(filepath.Base(file), ".md"), string(text), strict)
}

// fence begins and ends a block.
const fence = "```"

func parse(name, text string, strict bool) (*Page, error) {
	p := &Page{Name: name}
	var open *Block
	var kind string
	skip, n := false, 0
	for line := range strings.Lines(text) {
		n++
		info, isFence := strings.CutPrefix(strings.TrimSuffix(line, "\n"), fence)
		switch {
		case isFence && (open != nil || skip):
			if open != nil {
				p.Blocks = append(p.Blocks, *open)
			}
			open, skip = nil, false
		case isFence:
			b := Block{Line: n, Kind: kind}
			if err := b.read(info); err != nil && strict {
				return nil, fmt.Errorf("%s.md:%d: %w", name, n, err)
			} else if err != nil {
				skip = true
				continue
			}
			open = &b
		case open != nil:
			open.Text += line
		case strings.HasPrefix(line, "#") && !skip:
			kind = kindOf(line, kind)
		}
	}
	if open != nil || skip {
		return nil, fmt.Errorf("%s.md: the last block is not closed", name)
	}
	return p, p.check()
}

// kindOf is the kind below a heading. One of a lower level than the third leaves it.
func kindOf(heading, before string) string {
	rest, third := strings.CutPrefix(heading, "### ")
	switch words := strings.Fields(rest); {
	case strings.HasPrefix(heading, "####"):
		return before
	case third && len(words) > 0 && slices.Contains(Kinds(), strings.ToLower(strings.Trim(words[0], ":,."))):
		return strings.ToLower(strings.Trim(words[0], ":,."))
	}
	return ""
}

// read reads an info string.
func (b *Block) read(info string) error {
	words := strings.Fields(info)
	if len(words) < 2 {
		return fmt.Errorf("a block %q that does not say what it is an example of: nothing runs it", info)
	}
	b.Language, b.Role = words[0], words[1]
	rest := words[2:]
	switch {
	case b.Role == Request && b.Language == "json" && len(rest) < 2, b.Role == File && len(rest) == 1:
		b.Name = strings.Join(rest, "")
	case b.Role == Reply && (b.Language == "json" || b.Language == "text") && len(rest) == 0:
	case b.Role == Reply && (b.Language == "json" || b.Language == "text") && slices.Equal(rest, []string{"error"}):
		b.Failed = true
	case slices.Contains([]string{RPC, Config, Rules}, b.Role) && len(rest) == 0:
	default:
		return fmt.Errorf("a block %q: %s is not known there", info, strings.Join(words[1:], " "))
	}
	return nil
}

// check holds that each request has a reply, and the other way round.
func (p *Page) check() error {
	waits := 0 // line of a request without a reply so far
	asked := false
	for _, b := range p.Blocks {
		switch b.Role {
		case Request:
			if waits != 0 {
				return fmt.Errorf("%s.md:%d: a request without a reply", p.Name, waits)
			}
			waits, asked = b.Line, true
		case Reply:
			if !asked {
				return fmt.Errorf("%s.md:%d: a reply without a request", p.Name, b.Line)
			}
			waits = 0
		}
	}
	if waits != 0 {
		return fmt.Errorf("%s.md:%d: a request without a reply", p.Name, waits)
	}
	return nil
}

// A Call is a request of the page and what it is answered with.
type Call struct {
	Request Block
	Replies []Block // one at least; JSON first, for it is what names are learned from
}

// Calls are those of the page, in their order.
func (p *Page) Calls() []Call {
	var calls []Call
	for _, b := range p.Blocks {
		switch b.Role {
		case Request:
			calls = append(calls, Call{Request: b})
		case Reply:
			last := &calls[len(calls)-1]
			if last.Replies = append(last.Replies, b); b.Language == "json" {
				slices.SortStableFunc(last.Replies, func(a, b Block) int { return strings.Compare(a.Language, b.Language) })
			}
		}
	}
	return calls
}

// Missing are the kinds that the page has no example of.
func (p *Page) Missing() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool {
		return slices.ContainsFunc(p.Blocks, func(b Block) bool {
			return b.Kind == kind && (b.Role == Request || b.Role == RPC)
		})
	})
}
