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
		{[]string{"-count", "a"}, "invalid value \"a\" for -count: parse error\nhint: corral run --help"},
	} {
		f := flag.NewFlagSet("run", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.String("workspace", "", "")
		f.Int("count", 0, "")
		if err := ParseFlags(f, tt.args, "corral run"); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
		if err := ParseFlags(f, []string{"--help"}, "corral run"); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("help: %v", err)
		}
	}
}
