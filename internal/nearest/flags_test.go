package nearest

import (
	"errors"
	"flag"
	"io"
	"testing"
)

func TestParseFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-x"}, "unknown option -x\nhint: corral run --help"},
		{[]string{"--x"}, "unknown option --x\nhint: corral run --help"},
		{[]string{"--workspce=direct"}, "unknown option --workspce\nhint: did you mean --workspace?"},
		{[]string{"-workspac", "a"}, "unknown option -workspac\nhint: did you mean --workspace?"},
		{[]string{"--workspace"}, "missing value after --workspace\nhint: corral run --help"},
		{[]string{"-count", "a"}, "invalid value \"a\" for -count: must be a number\nhint: corral run --help"},
		{[]string{"--count", "99999999999999999999"}, "invalid value \"99999999999999999999\" for --count: must be a number\nhint: corral run --help"},
		{[]string{"--loud=x"}, "invalid value \"x\" for --loud: must be true or false\nhint: corral run --help"},
		{[]string{"--wait", "5"}, "invalid value \"5\" for --wait: must be a time such as 30s, 5m or 1h30m\nhint: corral run --help"},
		{[]string{"--worksp", "a"}, "unknown option --worksp\nhint: did you mean --workspace?"},
	} {
		f := flag.NewFlagSet("run", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.String("workspace", "", "")
		f.Int("count", 0, "")
		f.Bool("loud", false, "")
		f.Duration("wait", 0, "")
		if err := ParseFlags(f, tt.args, "corral run"); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
		if err := ParseFlags(f, []string{"--help"}, "corral run"); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("help: %v", err)
		}
	}
}
