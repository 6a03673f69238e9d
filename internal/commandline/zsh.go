package commandline

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Zsh writes a completion script for zsh, to be called _NAME in a directory of fpath.
func (p *Program) Zsh(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# zsh completion of %[1]s. Written by: %[1]s completion zsh\n_%[1]s() {\n", p.Name)
	b.WriteString("\tif ((CURRENT == 2)); then\n\t\tlocal -a commands=(\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\t\t\t%s\n", quote(c.Name+":"+zshEscape(c.Summary, ":")))
	}
	fmt.Fprintf(&b, "\t\t)\n\t\t_describe -t commands 'command of %s' commands\n\t\treturn\n\tfi\n", p.Name)
	b.WriteString("\tlocal command=$words[2]\n\tshift words\n\t((CURRENT--))\n\tcase $command in\n")
	for n := range p.Commands {
		p.Commands[n].zsh(&b)
	}
	fmt.Fprintf(&b, "\tesac\n}\n\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n\t_%[1]s \"$@\"\nelse\n\tcompdef _%[1]s %[1]s\nfi\n", p.Name)
	_, err := io.WriteString(w, b.String())
	return err
}

// zsh writes the case of a command: the specifications of _arguments.
func (c *Command) zsh(b *strings.Builder) {
	specs := []string{"(- *)--help[explain the command]"}
	for i := range c.Options {
		o := &c.Options[i]
		spec := "*" + o.Name + "[" + zshEscape(brief(o.Text), "[]") + "]"
		if o.Value != "" {
			spec = "*" + o.Name
			if strings.HasPrefix(o.Name, "--") {
				spec += "="
			}
			spec += "[" + zshEscape(brief(o.Text), "[]") + "]:" + zshEscape(o.Value, ":") + ":" + c.zshAction(o)
		}
		specs = append(specs, spec)
	}
	fmt.Fprintf(b, "\t%s)\n", c.Name)
	if len(c.Subs) > 0 {
		specs = append(specs, "1:command:("+strings.Join(c.subNames(), " ")+")")
		b.WriteString("\t\tlocal -a arguments=()\n\t\tcase $words[2] in\n")
		for _, s := range c.Subs {
			if action := zshActions[s.Arg]; action != "" {
				fmt.Fprintf(b, "\t\t%s) arguments=(%s) ;;\n", s.Name, quote("*:argument:"+action))
			}
		}
		b.WriteString("\t\tesac\n")
	}
	quoted := make([]string, 0, len(specs)+1)
	for _, spec := range specs {
		quoted = append(quoted, quote(spec))
	}
	switch action := zshActions[c.Arg]; {
	case len(c.Subs) > 0:
		quoted = append(quoted, "$arguments")
	case c.Arg == CommandLine:
		quoted = append(quoted, "'(-)1:program:_command_names -e'", "'*::argument:_normal'")
	case action != "": // an action that completes nothing would keep options from being completed
		quoted = append(quoted, quote("*:argument:"+action))
	}
	fmt.Fprintf(b, "\t\t_arguments -S \\\n\t\t\t%s\n\t\t;;\n", strings.Join(quoted, " \\\n\t\t\t"))
}

// zshActions complete arguments.
var zshActions = map[Kind]string{Directory: "_files -/", File: "_files", CommandLine: "_command_names -e"}

// zshAction completes the value of an option.
func (c *Command) zshAction(o *Option) string {
	if list := c.Words(o); list != nil {
		return "(" + strings.Join(list, " ") + ")"
	}
	return cmp.Or(zshActions[c.Kind(o)], " ")
}

// zshEscape puts a backslash before special characters.
func zshEscape(s, special string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(special+`\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quote quotes a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// brief returns the first part of a description, for a list.
func brief(text string) string {
	for _, end := range []string{"; ", " (", ". "} {
		text, _, _ = strings.Cut(text, end)
	}
	return strings.TrimSuffix(text, ".")
}
