package commandline

import (
	"fmt"
	"io"
	"strings"
)

// Fish writes a completion script for fish.
func (p *Program) Fish(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion of %[1]s. Written by: %[1]s completion fish\ncomplete -c %[1]s -f\n", p.Name)
	for n := range p.Commands {
		c := &p.Commands[n]
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", p.Name, c.Name, fishQuote(c.Summary))
		c.fish(&b, p.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fish writes the completions of a command.
func (c *Command) fish(b *strings.Builder, program string) {
	seen := fishQuote("__fish_seen_subcommand_from " + c.Name)
	for i := range c.Options {
		o := &c.Options[i]
		flag, name := "-l", strings.TrimLeft(o.Name, "-")
		if len(name) == 1 {
			flag = "-s"
		}
		fmt.Fprintf(b, "complete -c %s -n %s %s %s%s", program, seen, flag, name, c.fishValue(o))
		if text := brief(o.Text); text != "" {
			fmt.Fprintf(b, " -d %s", fishQuote(text))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "complete -c %s -n %s -l help -d 'explain the command'\n", program, seen)
	if len(c.Subs) == 0 {
		fishArguments(b, program, seen, c.Arg)
		return
	}
	names := strings.Join(c.subNames(), " ")
	none := fishQuote("__fish_seen_subcommand_from " + c.Name + "; and not __fish_seen_subcommand_from " + names)
	for _, s := range c.Subs {
		fmt.Fprintf(b, "complete -c %s -n %s -a %s", program, none, s.Name)
		if text := brief(s.Text); text != "" {
			fmt.Fprintf(b, " -d %s", fishQuote(text))
		}
		b.WriteByte('\n')
		both := fishQuote("__fish_seen_subcommand_from " + c.Name + "; and __fish_seen_subcommand_from " + s.Name)
		fishArguments(b, program, both, s.Arg)
	}
}

// fishValue returns the flags for the value of an option.
func (c *Command) fishValue(o *Option) string {
	if o.Value == "" {
		return ""
	}
	switch c.Kind(o) {
	case Directory:
		return " -x -a '(__fish_complete_directories)'"
	case File:
		return " -r -F"
	case Fixed:
		return " -x -a " + fishQuote(strings.Join(c.Words(o), " "))
	}
	return " -x"
}

// fishArguments completes the arguments where a condition holds.
func fishArguments(b *strings.Builder, program, condition string, kind Kind) {
	switch kind {
	case Directory:
		fmt.Fprintf(b, "complete -c %s -n %s -a '(__fish_complete_directories)'\n", program, condition)
	case File:
		fmt.Fprintf(b, "complete -c %s -n %s -F\n", program, condition)
	case CommandLine:
		fmt.Fprintf(b, "complete -c %s -n %s -F -a '(__fish_complete_command)'\n", program, condition)
	}
}

// fishQuote quotes a word for fish, whose single quotes know two escapes.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
