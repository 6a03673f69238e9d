package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"corral/internal/nearest"
	"corral/internal/text"
)

// ParseFlags parses the options of a command into f, whose name is the command's. If the help text is requested, it returns that as an
// error, which End prints.
func ParseFlags(f *flag.FlagSet, args []string, help string) error {
	_, err := parseFlags(f, args, help, func(f *flag.FlagSet, args []string, name string) ([]string, error) {
		return nil, nearest.ParseFlags(f, args, name)
	})
	return err
}

// ParseMixed is ParseFlags for commands whose options may stand before and after their arguments, which it returns.
func ParseMixed(f *flag.FlagSet, args []string, help string) (rest []string, err error) {
	return parseFlags(f, args, help, nearest.ParseMixed)
}

func parseFlags(
	f *flag.FlagSet, args []string, help string, parse func(*flag.FlagSet, []string, string) ([]string, error),
) (rest []string, err error) {
	f.SetOutput(io.Discard)
	rest, err = parse(f, args, "corral "+f.Name())
	if errors.Is(err, flag.ErrHelp) {
		err = helpText(help)
	}
	return rest, err
}

// A helpText is what a command prints in place of doing anything. It is not a failure.
type helpText string

// Error returns the text.
func (h helpText) Error() string { return string(h) }

// ParseAge parses a time such as 30d, 12h or 90m: a number of days up to 65535, or what time.ParseDuration accepts.
func ParseAge(s string) (time.Duration, error) {
	days, ok := strings.CutSuffix(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	return time.Duration(n) * 24 * time.Hour, err
}

// Misused returns the error for the arguments of a command of commands, such as corral audit: none, an unknown one, or one with the
// wrong arguments. help has a line for each in its usage, as package commandline reads it.
func Misused(command, help string, words []string) error {
	var verbs []string
	usage := map[string]string{}
	for line := range strings.Lines(help) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		line, ok := strings.CutPrefix(strings.TrimPrefix(line[2:], "sudo "), "corral "+command+" ")
		verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || verb == "" || !unicode.IsLower(rune(verb[0])) {
			continue
		}
		if usage[verb] == "" {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
			verbs, usage[verb] = append(verbs, verb), "corral "+command+" "+line
		}
	}
	accepted := verbs[len(verbs)-1]
	if len(verbs) > 1 {
		accepted = strings.Join(verbs[:len(verbs)-1], ", ") + " or " + accepted
	}
	switch {
	case len(words) == 0:
		return fmt.Errorf("no command given: corral %s needs %s\nhint: corral %s --help", command, accepted, command)
	case usage[words[0]] != "":
		return fmt.Errorf("wrong arguments for corral %s %s\nhint: %s", command, words[0], usage[words[0]])
	}
	hint := "corral " + command + " --help"
	if near := nearest.Of(words[0], verbs); near != "" {
		hint = "did you mean corral " + command + " " + near + "?"
	}
	return fmt.Errorf("%s is not a command of corral %s: must be %s\nhint: %s", text.Quote(words[0]), command, accepted, hint)
}

// Separated splits the value of an option at commas; "" is nil.
func Separated(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
