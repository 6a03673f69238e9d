package docs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"corral/internal/test/example"
	"corral/store/audit"
)

// TestCollectors: the configurations of collectors on the page are YAML, read the records of the audit log and no other file of its
// directory, can hold a record of any size, and lead from each input to a receiver. Neither collector is packaged by Debian, so nothing
// here runs them.
func TestCollectors(t *testing.T) {
	listings, err := example.Listings("how-to/observe-calls.md")
	if err != nil {
		t.Fatal(err)
	}
	var vector struct {
		Sources map[string]struct {
			Include []string
			Max     int `yaml:"max_line_bytes"`
		}
		Sinks map[string]struct{ Inputs []string }
	}
	var fluent struct {
		Pipeline struct{ Inputs, Outputs []map[string]any }
	}
	var texts []string
	for _, l := range listings {
		if l.What == "TestCollectors" {
			texts = append(texts, l.Text)
		}
	}
	if len(texts) != 2 {
		t.Fatalf("the page has %d configurations", len(texts))
	}
	for i, to := range []any{&vector, &fluent} {
		if err := yaml.Unmarshal([]byte(texts[i]), to); err != nil {
			t.Fatal(err)
		}
	}
	if len(vector.Sources) != 1 || len(vector.Sinks) != 1 || len(fluent.Pipeline.Inputs) != 1 || len(fluent.Pipeline.Outputs) != 1 {
		t.Fatalf("%+v\n%+v", vector, fluent)
	}
	in, out := fluent.Pipeline.Inputs[0], fluent.Pipeline.Outputs[0]
	readsRecords(t, in["path"].(string))
	if in["tag"] != out["match"] {
		t.Errorf("fluent bit: the output matches %v, and the input has the tag %v", out["match"], in["tag"])
	}
	if out["syslog_maxsize"] != audit.MaxLine || in["buffer_max_size"] != fmt.Sprintf("%dk", audit.MaxLine>>10) {
		t.Errorf("fluent bit: %v and %v for a record of %d bytes", in["buffer_max_size"], out["syslog_maxsize"], audit.MaxLine)
	}
	for name, source := range vector.Sources {
		readsRecords(t, strings.Join(source.Include, ","))
		if source.Max != audit.MaxLine {
			t.Errorf("vector: %d for a record of %d bytes", source.Max, audit.MaxLine)
		}
		for _, sink := range vector.Sinks {
			if !slices.Equal(sink.Inputs, []string{name}) {
				t.Errorf("vector: a sink has the inputs %q, and the source is %q", sink.Inputs, name)
			}
		}
	}
}

// readsRecords checks the files that a pattern of a collector matches in the directory of the audit log.
func readsRecords(t *testing.T, pattern string) {
	t.Helper()
	const dir = "/var/lib/corral/audit"
	for name, want := range map[string]bool{
		audit.FileName(1): true, audit.FileName(123456789): true,
		audit.HeadFile: false, audit.CheckpointFile: false, audit.LockFile: false, audit.ScanLockFile: false,
		"torn-5-120": false,
	} {
		if got, err := filepath.Match(pattern, filepath.Join(dir, name)); got != want || err != nil {
			t.Errorf("%s matches %s: %v, %v", pattern, name, got, err)
		}
	}
}
