package usage

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"corral/isolate/client"
	"corral/isolate/host"
	"corral/job"
)

// TestDefaults: the defaults that the texts name are those of the code.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct{ text, option, value string }{
		{Run, "--supervisor SOCKET", client.DefaultSocket},
		{Session, "--supervisor SOCKET", client.DefaultSocket},
		{Corrald, "--socket PATH", client.DefaultSocket},
		{Corrald, "--state DIR", host.DefaultStateDir},
	} {
		_, after, found := strings.Cut(tt.text, "\n  "+tt.option)
		line, _, _ := strings.Cut(after, "\n")
		if !found || !strings.Contains(line, "(default "+tt.value) {
			t.Errorf("%s: %q does not name %s", tt.option, line, tt.value)
		}
	}
}

var update = flag.Bool("update", false, "write limits.go")

// TestLimits compares the options for limits with the limits of package job. With -update it writes them.
func TestLimits(t *testing.T) {
	values := map[job.Unit]string{job.Bytes: "SIZE", job.CPUs: "N", job.Time: "TIME", job.Count: "N"}
	var want strings.Builder
	defaults := job.Defaults()
	for _, f := range defaults.Fields() {
		value := f.Format(*f.Value)
		if *f.Value == job.Unlimited {
			value = "no limit"
		}
		if f.Option != "" {
			fmt.Fprintf(&want, "  %-21s %s (default %s)\n", "--"+f.Option+" "+values[f.Unit], f.Phrase(), value)
		}
	}
	if Limits == want.String() {
		return
	}
	if !*update {
		t.Fatalf("limits.go is out of date. Run: go test ./internal/usage -run TestLimits -update\nit has\n%s\nwant\n%s", Limits, want.String())
	}
	source, err := os.ReadFile("limits.go")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(source), "`")
	if err := os.WriteFile("limits.go", []byte(before+"`"+want.String()+"`\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
