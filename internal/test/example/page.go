// Package example reads the examples in pages of the documentation, and compares them with the answers of a program. Only
// tests import it.
//
// An example is a fenced block. Its role follows the language in the info string, which renderers ignore:
//
//	json request          the arguments of a call of the page's tool
//	json request NAME     the arguments of a call of another tool
//	json reply            structuredContent of a result without isError
//	json reply error      structuredContent of a result with isError
//	text reply [error]    the text of a result
//	text rpc              messages, one per line: "→ " is sent, "← " is received, in this order
//	… file NAME           a file that exists in the repository
//	… config, … rules     sections of the configuration, and the operator's rules
//
// A heading of level three that begins with one of the Kinds sets the kind of the examples below it.
//
// Values that differ from run to run are shown as they once were. A Matcher recognizes them by their keys, remembers the
// real value of each, and inserts it where a later request uses the shown one. "…" in a text stands for any text, as a key
// for any further keys, and as the last element of a list for any further elements.
package example

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The kinds of examples.
const (
	Valid   = "valid"   // the request succeeds
	Refused = "refused" // the request is refused because of its arguments or the policy
	Timeout = "timeout" // the request exceeds its time limit
	Error   = "error"   // the request fails
)

// Kinds returns all kinds.
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

// A Page holds the examples of a page.
type Page struct {
	Name   string // the file's name without .md
	Blocks []Block
}

// A Block is one fenced block.
type Block struct {
	Line     int    // line number of the opening fence
	Kind     string // "" unless below a heading with a kind
	Language string // for example "json"
	Role     string
	Name     string // the tool of a request, or the name of a file; "" if the fence has none
	Failed   bool   // a reply with isError
	Text     string // ends in a newline
}

// Read reads a page. With strict, a fenced block without a role is an error, because no test would run it.
func Read(file string, strict bool) (*Page, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(strings.TrimSuffix(filepath.Base(file), ".md"), string(text), strict)
}

// fence starts and ends a block.
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

// kindOf returns the kind below a heading. Headings of level four and more keep the kind before them.
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

// read parses an info string.
func (b *Block) read(info string) error {
	words := strings.Fields(info)
	if len(words) < 2 {
		return fmt.Errorf("block %q has no role, so no test runs it", info)
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
		return fmt.Errorf("block %q: unknown role %s", info, strings.Join(words[1:], " "))
	}
	return nil
}

// check returns an error unless each request has a reply and each reply a request.
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

// A Call is a request of the page with its replies.
type Call struct {
	Request Block
	Replies []Block // at least one; JSON first, because names are learned from it
}

// Calls returns the calls of the page in order.
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

// Missing returns the kinds that the page has no example of.
func (p *Page) Missing() []string {
	return slices.DeleteFunc(Kinds(), func(kind string) bool {
		return slices.ContainsFunc(p.Blocks, func(b Block) bool {
			return b.Kind == kind && (b.Role == Request || b.Role == RPC)
		})
	})
}
