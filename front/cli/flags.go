package cli

import (
	"errors"
	"flag"
	"io"
	"strconv"
	"strings"
	"time"

	"corral/front/privilege"
	"corral/internal/nearest"
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

// Separated splits the value of an option at commas; "" is nil.
func Separated(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
