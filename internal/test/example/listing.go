package example

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A Listing is a fenced block of commands, or one with a comment, and what runs it. The comment stands on the line before the
// fence; one that stands before anything else applies to all blocks of commands of the page that have none:
//
//	<!-- run: as USER -->                    scripts/follow runs the commands as this account, and compares their output
//	<!-- run: as USER, in the background --> the same for a command that does not end: it runs until the end of the page
//	<!-- run: write PATH -->                 scripts/follow writes the block to this file
//	<!-- tested: TestX -->                   this test runs the block, or checks it in another way
//	<!-- not run: REASON -->                 nothing does
type Listing struct {
	Line     int    // line number of the opening fence
	Language string // "", "sh" or "console" for commands
	Text     string // without the indentation of the fence; ends in a newline
	How      string // Run, Tested, NotRun, or "" without a comment
	What     string // what follows the colon in the comment
}

// What runs a Listing.
const (
	Run    = "run"
	Tested = "tested"
	NotRun = "not run"
)

var (
	listingComment = regexp.MustCompile(`^ *<!-- (run|tested|not run): (.+) -->$`)
	listingFence   = regexp.MustCompile("^( *)```(.*)$")
)

// Listings returns the listings of a page, in order.
func Listings(file string) ([]Listing, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list, err := listings(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

func listings(text string) ([]Listing, error) {
	var list []Listing
	var open *Listing
	var page, before []string // the comment for the page, and that of the line before
	indent, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		comment, fence := listingComment.FindStringSubmatch(line), listingFence.FindStringSubmatch(line)
		switch {
		case open != nil && fence != nil && fence[2] == "":
			if open.How != "" || open.commands() {
				list = append(list, *open)
			}
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case fence != nil:
			indent, open = fence[1], &Listing{Line: n, Language: fence[2]}
			if before == nil && open.commands() {
				before = page
			}
			if before != nil {
				open.How, open.What = before[1], before[2]
			}
		case before != nil && page == nil:
			page = before
		case before != nil:
			return nil, fmt.Errorf("line %d: the comment before it is for no block", n)
		}
		before = comment
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block is not closed", open.Line)
	}
	return list, nil
}

// commands reports whether l is in a language of commands.
func (l *Listing) commands() bool { return slices.Contains([]string{"", "sh", "console"}, l.Language) }

// A Step is one command of a page, or one file.
type Step struct {
	Line       int
	User       string // the account that runs Command
	Background bool   // Command runs until the end of the page
	Command    string
	Output     string // what the page shows as its output; "" if it shows none
	File       string // the file that gets Text; Command is ""
	Text       string
}

// Steps returns the steps of a listing that scripts/follow runs. Lines after a prompt are commands, others their output;
// without any prompt, each line is a command. A command continues on the next line after a backslash and, with a prompt, on
// lines that begin with "> ". Empty lines at the end of an output are not part of it.
func (l Listing) Steps() ([]Step, error) {
	if l.How != Run {
		return nil, nil
	}
	if file, ok := strings.CutPrefix(l.What, "write "); ok {
		return []Step{{Line: l.Line, File: file, Text: l.Text}}, nil
	}
	user, ok := strings.CutPrefix(l.What, "as ")
	user, background := strings.CutSuffix(user, ", in the background")
	if !ok || strings.ContainsAny(user, " ,") || !l.commands() {
		return nil, fmt.Errorf("line %d: %q must be \"as USER\", \"as USER, in the background\" or \"write PATH\", before a block in sh or console",
			l.Line, l.What)
	}
	var steps []Step
	prompts := prompt.MatchString(l.Text)
	for i, line := range strings.Split(strings.TrimRight(l.Text, "\n"), "\n") {
		command, isCommand := line, !prompts
		if prompts && prompt.MatchString(line) {
			command, isCommand = line[2:], true
		}
		var last *Step
		if len(steps) > 0 {
			last = &steps[len(steps)-1]
		}
		more, continued := strings.CutPrefix(line, "> ")
		switch {
		case last != nil && last.Output == "" && strings.HasSuffix(last.Command, "\\"):
			last.Command += "\n" + line
		case last != nil && last.Output == "" && continued && prompts:
			last.Command += "\n" + more
		case isCommand && strings.TrimSpace(command) != "":
			steps = append(steps, Step{Line: l.Line + 1 + i, User: user, Background: background, Command: command})
		case prompts && last == nil:
			return nil, fmt.Errorf("line %d: output before the first command", l.Line+1+i)
		case prompts:
			last.Output += line + "\n"
		}
	}
	for i := range steps {
		steps[i].Output = strings.TrimRight(steps[i].Output, "\n")
	}
	return steps, nil
}

var prompt = regexp.MustCompile(`(?m)^[$#] `)
