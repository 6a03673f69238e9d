package commandline

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// bashHead begins the completion script for bash. It needs nothing of bash-completion, which may not be installed.
// A word --option=value is three words there, because = is in COMP_WORDBREAKS.
const bashHead = `# bash completion of %[1]s. Written by: %[1]s completion bash
_%[1]s_reply() {
	local IFS=$'\n'
	mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

_%[1]s() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} n
	local command=${COMP_WORDS[1]} sub=${COMP_WORDS[2]} options='' arguments=''
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_%[1]s_reply -W %[2]s
		return
	fi
	if [[ $cur == "=" ]]; then
		cur=''
	elif [[ $prev == "=" ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
`

// bashTail decides by options and arguments, which the part above it has set.
const bashTail = `	for ((n = 2; n < COMP_CWORD; n++)); do
		if [[ ${COMP_WORDS[n]} == -- ]]; then # what follows is another program's command line
			if ((n == COMP_CWORD - 1)); then
				_%[1]s_reply -c
			else
				compopt -o filenames 2>/dev/null
				_%[1]s_reply -f
			fi
			return
		fi
	done
	if [[ $cur == -* ]]; then
		_%[1]s_reply -W "$options"
		return
	fi
	case $arguments in
	directory)
		compopt -o filenames 2>/dev/null
		_%[1]s_reply -d
		;;
	file)
		compopt -o filenames 2>/dev/null
		_%[1]s_reply -f
		;;
	program) _%[1]s_reply -c ;;
	esac
} &&
	complete -F _%[1]s %[1]s
`

// Bash writes a completion script for bash.
func (p *Program) Bash(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, bashHead, p.Name, bashWords(p.names()))
	p.bashValues(&b)
	b.WriteString("\tcase $command in\n")
	for n := range p.Commands {
		p.Commands[n].bash(&b, p.Name)
	}
	b.WriteString("\tesac\n")
	fmt.Fprintf(&b, bashTail, p.Name)
	_, err := io.WriteString(w, b.String())
	return err
}

// bashValues completes the value of an option, which stands before it.
func (p *Program) bashValues(b *strings.Builder) {
	replies := map[string][]string{} // completion → the patterns of options
	for n := range p.Commands {
		c := &p.Commands[n]
		for i := range c.Options {
			if o := &c.Options[i]; o.Value != "" {
				reply := p.bashReply(c, o)
				replies[reply] = append(replies[reply], "'"+c.Name+" "+o.Name+"'")
			}
		}
	}
	b.WriteString("\tcase \"$command $prev\" in\n")
	for _, reply := range slices.Sorted(maps.Keys(replies)) {
		fmt.Fprintf(b, "\t%s)\n%s\t\treturn\n\t\t;;\n", strings.Join(replies[reply], " | "), reply)
	}
	b.WriteString("\tesac\n")
}

// bashReply returns the commands that complete the value of an option.
func (p *Program) bashReply(c *Command, o *Option) string {
	switch c.Kind(o) {
	case Directory:
		return "\t\tcompopt -o filenames 2>/dev/null\n\t\t_" + p.Name + "_reply -d\n"
	case File:
		return "\t\tcompopt -o filenames 2>/dev/null\n\t\t_" + p.Name + "_reply -f\n"
	case Fixed:
		return "\t\t_" + p.Name + "_reply -W " + bashWords(c.Words(o)) + "\n"
	}
	return ""
}

// bashWords returns a quoted list of words for compgen -W, which separates them by IFS.
func bashWords(list []string) string { return "$'" + strings.Join(list, `\n`) + "'" }

// bash sets what the completion of a command's line depends on.
func (c *Command) bash(b *strings.Builder, program string) {
	fmt.Fprintf(b, "\t%s)\n\t\toptions=%s\n", c.Name, bashWords(c.optionNames()))
	if len(c.Subs) > 0 {
		fmt.Fprintf(b, "\t\tif ((COMP_CWORD == 2)) && [[ $cur != -* ]]; then\n\t\t\t_%s_reply -W %s\n\t\t\treturn\n\t\tfi\n",
			program, bashWords(c.subNames()))
		b.WriteString("\t\tcase $sub in\n")
		for _, s := range c.Subs {
			if word := bashArguments[s.Arg]; word != "" {
				fmt.Fprintf(b, "\t\t%s) arguments='%s' ;;\n", s.Name, word)
			}
		}
		b.WriteString("\t\tesac\n")
	} else if word := bashArguments[c.Arg]; word != "" {
		fmt.Fprintf(b, "\t\targuments='%s'\n", word)
	}
	b.WriteString("\t\t;;\n")
}

// bashArguments are the names of kinds in the script.
var bashArguments = map[Kind]string{Directory: "directory", File: "file", CommandLine: "program"}
