package commandline

import (
	"fmt"
	"io"
	"strings"
)

// A Source says what a manual page belongs to.
type Source struct {
	Version string // of the release
	Date    string // of the release, as 2026-11-23; may be empty
}

// Man writes the manual page of the program, which lists its commands.
func (p *Program) Man(w io.Writer, from Source) error {
	c := Parse(p.Name, p.Help)
	var pages []string
	for _, command := range p.Commands {
		if len(command.Usage) > 0 {
			pages = append(pages, p.Name+"-"+command.Name+"(1)")
		}
	}
	return c.man(w, p.Name, "1", "COMMANDS", from, append(pages, "corrald(8)"))
}

// ManOf writes the manual page of a command of the program: NAME-COMMAND(1).
func (p *Program) ManOf(c *Command, w io.Writer, from Source) error {
	return c.man(w, p.Name+"-"+c.Name, "1", "DESCRIPTION", from, []string{p.Name + "(1)"})
}

// Man writes the manual page of a program without commands, in a section of the manual.
func (c *Command) Man(w io.Writer, section string, from Source, seeAlso ...string) error {
	return c.man(w, c.Name, section, "DESCRIPTION", from, seeAlso)
}

// man writes a page called name. The entries of the usage that have a description are listed under a heading.
func (c *Command) man(w io.Writer, name, section, entries string, from Source, seeAlso []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s %s \"%s\" \"corral %s\" \"corral\"\n", roff(strings.ToUpper(name)), section, from.Date, roff(from.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(name), roff(c.Summary))
	for n, e := range c.Usage {
		if n > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, "%s\n", roff(e.Line))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roffLines(c.Intro))
	if entries != "DESCRIPTION" {
		fmt.Fprintf(&b, ".SH %s\n", entries)
	}
	for _, e := range c.Usage {
		if e.Text != "" {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e.Line), roffLines(e.Text))
		}
	}
	if entries == "DESCRIPTION" {
		c.manOptions(&b)
	}
	c.manRest(&b)
	if len(seeAlso) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roffLines(strings.Join(seeAlso, ",\n")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Command) manOptions(b *strings.Builder) {
	if len(c.Options) == 0 {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	for i := range c.Options {
		if o := &c.Options[i]; o.Text != "" {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(o.Name))
			if o.Value != "" {
				fmt.Fprintf(b, " \\fI%s\\fR", roff(o.Value))
			}
			fmt.Fprintf(b, "\n%s\n", roffLines(o.Text))
		}
	}
}

// headings are the headings of paragraphs that begin with these words.
var headings = []struct{ begin, heading string }{{"Exit code: ", "EXIT STATUS"}, {"Examples:\n", "EXAMPLES"}}

// manRest writes the other paragraphs. Indented lines stay as they are.
func (c *Command) manRest(b *strings.Builder) {
	noted := false
	for _, part := range c.Rest {
		text, heading := part, ""
		for _, h := range headings {
			if after, ok := strings.CutPrefix(part, h.begin); ok {
				text, heading = after, h.heading
			}
		}
		switch {
		case heading != "":
			fmt.Fprintf(b, ".SH %s\n", heading)
		case !noted:
			b.WriteString(".SH NOTES\n")
		default:
			b.WriteString(".PP\n")
		}
		noted = true
		if strings.HasPrefix(text, "  ") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", roffLines(text))
		} else {
			fmt.Fprintf(b, "%s\n", roffLines(text))
		}
	}
}

// roff escapes text for a line of a manual page.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(s)
}

// roffLines escapes lines of text: none is a request.
func roffLines(s string) string {
	lines := strings.Split(roff(s), "\n")
	for n, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[n] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
