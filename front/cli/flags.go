package cli

import (
	"errors"
	"flag"
	"io"
	"strings"

	"corral/front/privilege"
	"corral/internal/nearest"
)

// ParseFlags parses the options of a command into f, whose name is the command's. A request for help, which it answers,
// and an error end the command (ended): root is dropped, and the command returns code and err.
func ParseFlags(f *flag.FlagSet, args []string, help string) (ended bool, code int, err error) {
	f.SetOutput(io.Discard)
	if err = nearest.ParseFlags(f, args, "corral "+f.Name()); err == nil {
		return false, 0, nil
	}
	if dropped := privilege.Drop(); dropped != nil {
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
	for {
		if ended, code, err := ParseFlags(f, args, help); ended {
			return nil, true, code, err
		}
		if f.NArg() == 0 {
			return rest, false, 0, nil
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
}

// Separated splits the value of an option at commas; "" is nil.
func Separated(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
