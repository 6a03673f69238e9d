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
	"corral/isolate/client/embed"
)

// ParseFlags parses the options of a command into f, whose name is the command's. A request for help, which it answers,
// and an error end the command (ended): root is dropped, and the command returns code and err.
func ParseFlags(f *flag.FlagSet, args []string, help string) (ended bool, code int, err error) {
	f.SetOutput(io.Discard)
	return parsed(nearest.ParseFlags(f, args, "corral "+f.Name()), help)
}

// parsed returns whether the result of parsing ends a command, and how.
func parsed(err error, help string) (ended bool, code int, _ error) {
	if err == nil {
		return false, 0, nil
	}
	if dropped := embed.Drop(); dropped != nil {
		return true, Failure, dropped
	}
	if errors.Is(err, flag.ErrHelp) {
		code, err = Print(help)
		return true, code, err
	}
	return true, Failure, err
}

// ParseMixed is ParseFlags for commands whose options may stand before and after their arguments, which it returns.
func ParseMixed(f *flag.FlagSet, args []string, help string) (rest []string, ended bool, code int, err error) {
	f.SetOutput(io.Discard)
	rest, err = nearest.ParseMixed(f, args, "corral "+f.Name())
	ended, code, err = parsed(err, help)
	return rest, ended, code, err
}

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
