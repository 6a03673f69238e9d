package nearest

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// ParseFlags calls f.Parse. Its errors name an option as it was typed, with a hint: the nearest known option for an unknown
// one, otherwise the command's --help. A request for help is flag.ErrHelp.
func ParseFlags(f *flag.FlagSet, args []string, command string) error {
	err := f.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	text, hint := err.Error(), command+" --help"
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = "unknown option " + typed(args, name)
		var known []string
		f.VisitAll(func(option *flag.Flag) { known = append(known, option.Name) })
		if near := Of(name, known); near != "" {
			hint = "did you mean --" + near + "?"
		}
	} else if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		text = "missing value after " + typed(args, name)
	} else if before, after, ok := strings.Cut(strings.Replace(text, "boolean value", "value", 1), "\" for "); ok {
		after = strings.TrimPrefix(strings.TrimPrefix(after, "flag "), "-")
		name, rest, _ := strings.Cut(after, ":")
		text = before + "\" for " + typed(args, name) + ": " + accepted(f.Lookup(name), strings.TrimSpace(rest))
	}
	return fmt.Errorf("%s\nhint: %s", text, hint)
}

// accepted returns why package flag or an option's own parser refused a value: what it must be. Those of package flag say no more than
// "parse error".
func accepted(option *flag.Flag, why string) string {
	getter, ok := option.Value.(flag.Getter)
	if !ok || why != "parse error" && why != "value out of range" {
		return why
	}
	switch getter.Get().(type) {
	case time.Duration:
		return "must be a time such as 30s, 5m or 1h30m"
	case bool:
		return "must be true or false"
	}
	return "must be a number"
}

// ParseMixed is ParseFlags for commands whose options may stand before and after their arguments, where package flag stops. It
// returns the arguments.
func ParseMixed(f *flag.FlagSet, args []string, command string) (rest []string, err error) {
	for {
		if err := ParseFlags(f, args, command); err != nil || f.NArg() == 0 {
			return rest, err
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
}

// typed returns the option as it was typed in args, with one dash or two.
func typed(args []string, name string) string {
	for _, arg := range args {
		if option, _, _ := strings.Cut(arg, "="); option == "-"+name || option == "--"+name {
			return option
		}
	}
	return "--" + name
}
