// Package commandline reads the help texts of commands, and writes completion scripts and manual pages from them. So a help
// text is the one place where a command's options are listed.
//
// A help text has this form: a paragraph that begins with the command's name; a section "Usage:"; lines of options, which
// begin with two blanks and a dash, two or more blanks before the description; and other paragraphs.
package commandline

import (
	"slices"
	"strings"

	"corral/internal/lazyregexp"
)

// A Command is one command of corral, or another program.
type Command struct {
	Name    string   // as typed after corral, or the program's name
	Summary string   // what it does, in one sentence without the name and the full stop
	Intro   string   // the paragraphs before the usage
	Usage   []Entry  // how it is called
	Subs    []Sub    // its own commands, such as open of session
	Arg     Kind     // what its arguments are, for a command without Subs
	Options []Option // in the order of the help text, those of the usage last
	Rest    []string // the other paragraphs
}

// A Sub is a command of a command.
type Sub struct {
	Name string
	Text string // what it does
	Arg  Kind   // what its arguments are
}

// An Option is an option of a command.
type Option struct {
	Name  string // with its dashes
	Value string // what the help text calls the value, "" if the option has none
	Text  string // the description, "" for an option that only the usage lists
}

// A Kind is the kind of a value, which decides how it is completed.
type Kind int

// The kinds of values.
const (
	Free        Kind = iota // anything; it is not completed
	Directory               // a directory
	File                    // a file or a directory
	CommandLine             // a program and its arguments
	Fixed                   // one of the words of Words
)

// placeholders are the names of values in help texts, with the kind of value. Names of sessions, repositories and
// handles are not looked up: completing must not start a program or connect to the supervisor.
var placeholders = map[string]Kind{
	"DIR": Directory, "FILE": File, "SOCKET": File, "PATH": File, "SOURCE": File, "REQUEST.json": File,
	"PROGRAM": CommandLine,
	"MODE":    Fixed, "WHAT": Fixed, "WORD": Fixed, "LEVEL": Fixed, "PROFILE": Fixed,
	"ID": Free, "ID,...": Free, "NAME": Free, "NAME,...": Free, "NAME=VALUE": Free, "HANDLE": Free, "SIZE": Free, "TIME": Free, "N": Free,
	"USER": Free, "PRINCIPAL": Free, "TOOL": Free, "URL": Free,
	"ADDRESS": Free, "HOST:PORT": Free, "HOST,...": Free, "DIGEST": Free, "TERM": Free, "A-B": Free, "T": Free, "SEQ:HASH": Free,
	"JOB|SEQ": Free, "TEXT": Free,
	// Examples in place of a name.
	"GET": Free, "30s": Free, "30m": Free, "1GiB": Free, "1.5": Free, "256": Free,
}

// words are the words that an option accepts, by command and option. The values of others are not fixed.
var words = map[string][]string{
	"run --workspace":               {"direct", "readonly", "overlay", "none"},
	"run --protect":                 {"none", "hooks", "all"},
	"run --profile":                 {"default", "strict"},
	"session --workspace":           {"direct", "readonly", "overlay"},
	"session --profile":             {"default", "strict"},
	"repo --profile":                {"default", "strict"},
	"ci --profile":                  {"default", "strict"},
	"mcp --tool-names":              {"plain", "dotted"},
	"mcp --log-level":               {"debug", "info", "warn", "error"},
	"serve --tool-names":            {"plain", "dotted"},
	"serve --log-level":             {"debug", "info", "warn", "error"},
	"exec-server --log-level":       {"debug", "info", "warn", "error"},
	"codex-environment --log-level": {"debug", "info", "warn", "error"},
	"codex-environment --workspace": {"direct", "overlay", "readonly"},
	"audit --outcome":               {"success", "failure", "timeout", "cancelled", "lost", "refused", "denied"},
	"output --stream":               {"stdout", "stderr", "both"},
}

// Words returns the words that an option of the command accepts, or nil if they are not fixed.
func (c *Command) Words(o *Option) []string {
	if list := strings.Split(o.Value, "|"); len(list) > 1 && o.Value == strings.ToLower(o.Value) {
		return list
	}
	return words[c.Name+" "+o.Name]
}

// Kind returns the kind of an option's value.
func (c *Command) Kind(o *Option) Kind {
	if c.Words(o) != nil {
		return Fixed
	}
	return placeholders[o.Value]
}

// An Entry is one line of a usage, which may continue on further ones.
type Entry struct {
	Line string // what is typed
	Text string // what it does, "" if the usage does not say
}

// Parse reads the help text of the command or program with a name.
func Parse(name, help string) Command {
	c := Command{Name: name}
	for n, part := range strings.Split(strings.TrimRight(help, "\n"), "\n\n") {
		switch usage, isUsage := strings.CutPrefix(part, "Usage:"); {
		case isUsage:
			c.readUsage(strings.Split(strings.TrimPrefix(usage, "\n"), "\n"))
		case strings.HasPrefix(part, "  -"):
			c.addOptions(part)
		case n == 0:
			c.Intro = part
			c.Summary = summary(name, part)
		default:
			c.Rest = append(c.Rest, part)
		}
	}
	for _, e := range c.Usage {
		c.readEntry(e)
	}
	return c
}

// summary returns the first sentence of an introduction without the names in front.
func summary(name, intro string) string {
	text := strings.Join(strings.Fields(intro), " ")
	for _, end := range []string{": ", ". ", "; "} {
		text, _, _ = strings.Cut(text, end)
	}
	text = strings.TrimSuffix(text, ".")
	return strings.TrimPrefix(strings.TrimPrefix(text, "corral "), name+" ")
}

var (
	optionLine  = lazyregexp.New(`^  (--?[a-z][a-z-]*)(?: (\S+))?   *(\S.*)$`)
	usageLine   = lazyregexp.New(`^(sudo )?corrald? `)
	usageOption = lazyregexp.New(`(?:^|[\[ ])(--?[a-z][a-z-]*)(?: ([^\s\]-][^\s\]]*))?`)
	usageSub    = lazyregexp.New(`^(?:sudo )?corral [a-z-]+ (?:\[OPTIONS\] )?([a-z]+(?:\|[a-z]+)*)(?: |$)`)
)

// addOptions reads a paragraph with an option on each line, or on several: the others are indented more.
func (c *Command) addOptions(part string) {
	for line := range strings.SplitSeq(part, "\n") {
		if m := optionLine().FindStringSubmatch(line); m != nil {
			c.Options = append(c.Options, Option{Name: m[1], Value: m[2], Text: m[3]})
		} else if n := len(c.Options); n > 0 {
			c.Options[n-1].Text += " " + strings.TrimSpace(line)
		}
	}
}

// readUsage reads the lines of a usage. A line that begins neither with a program nor with a bracket continues the
// description of the line above.
func (c *Command) readUsage(lines []string) {
	for _, line := range lines {
		left, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		last := len(c.Usage) - 1
		switch {
		case usageLine().MatchString(left):
			c.Usage = append(c.Usage, Entry{left, strings.TrimSpace(text)})
		case last < 0:
		case strings.HasPrefix(left, "["):
			c.Usage[last].Line += " " + left
		default:
			c.Usage[last].Text = strings.TrimSpace(c.Usage[last].Text + " " + strings.TrimSpace(line))
		}
	}
}

// readEntry finds the commands of the command in an entry of its usage, the kind of its arguments, and the options that
// only the usage lists.
func (c *Command) readEntry(e Entry) {
	arg := argument(e.Line)
	if m := usageSub().FindStringSubmatch(e.Line); m != nil {
		for name := range strings.SplitSeq(m[1], "|") {
			c.Subs = append(c.Subs, Sub{Name: name, Text: e.Text, Arg: arg})
		}
	} else if c.Arg == Free {
		c.Arg = arg
	}
	for _, m := range usageOption().FindAllStringSubmatch(e.Line, -1) {
		if !slices.ContainsFunc(c.Options, func(o Option) bool { return o.Name == m[1] }) {
			c.Options = append(c.Options, Option{Name: m[1], Value: m[2]})
		}
	}
}

// argument returns the kind of the arguments in a line of a usage: that of the first argument which is completed.
func argument(line string) Kind {
	for word := range strings.FieldsSeq(usageOption().ReplaceAllString(line, " ")) {
		switch kind := placeholders[strings.Trim(strings.TrimSuffix(word, "..."), "[]")]; kind {
		case Directory, File, CommandLine:
			return kind
		}
	}
	return Free
}
