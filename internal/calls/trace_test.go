package calls

import (
	"regexp"
	"strings"
	"testing"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
)

func TestTraceOf(t *testing.T) {
	zeros := strings.Repeat("0", 32)
	for _, tt := range []struct {
		name, parent, state string
		want                Trace // without an ID: a new trace
	}{
		{"sampled", "00-" + traceID + "-" + parentID + "-01", "", Trace{traceID, parentID, true, ""}},
		{"not sampled", "00-" + traceID + "-" + parentID + "-00", "", Trace{traceID, parentID, false, ""}},
		{"other flags", "00-" + traceID + "-" + parentID + "-fe", "", Trace{traceID, parentID, false, ""}},
		{"random flag too", "00-" + traceID + "-" + parentID + "-03", "", Trace{traceID, parentID, true, ""}},
		{"state", "00-" + traceID + "-" + parentID + "-01", "a=1,b=2", Trace{traceID, parentID, true, "a=1,b=2"}},
		{"a long state", "00-" + traceID + "-" + parentID + "-01", strings.Repeat("a", 513), Trace{traceID, parentID, true, ""}},
		{"a state of two lines", "00-" + traceID + "-" + parentID + "-01", "a=1\nb", Trace{traceID, parentID, true, ""}},
		{"a later version", "01-" + traceID + "-" + parentID + "-01", "", Trace{traceID, parentID, true, ""}},
		{"a later version with more", "cc-" + traceID + "-" + parentID + "-01-what", "", Trace{traceID, parentID, true, ""}},
		{"a later version with more and no dash", "cc-" + traceID + "-" + parentID + "-01what", "", Trace{}},
		{"nothing", "", "", Trace{}},
		{"state alone", "", "a=1", Trace{}},
		{"no version", "ff-" + traceID + "-" + parentID + "-01", "", Trace{}},
		{"version 00 with more", "00-" + traceID + "-" + parentID + "-01-x", "", Trace{}},
		{"trace of zeros", "00-" + zeros + "-" + parentID + "-01", "", Trace{}},
		{"parent of zeros", "00-" + traceID + "-" + zeros[:16] + "-01", "", Trace{}},
		{"upper case", "00-" + strings.ToUpper(traceID) + "-" + parentID + "-01", "", Trace{}},
		{"not hex", "00-" + traceID[:31] + "g-" + parentID + "-01", "", Trace{}},
		{"flags not hex", "00-" + traceID + "-" + parentID + "-0x", "", Trace{}},
		{"without flags", "00-" + traceID + "-" + parentID, "", Trace{}},
		{"other separators", "00_" + traceID + "_" + parentID + "_01", "", Trace{}},
		{"spaces", " 00-" + traceID + "-" + parentID + "-01", "", Trace{}},
		{"endless", "cc-" + traceID + "-" + parentID + "-01-" + strings.Repeat("a", 1<<20), "", Trace{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := TraceOf(tt.parent, tt.state)
			if tt.want.ID != "" {
				if got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
				return
			}
			isNew(t, got)
			if again := TraceOf(tt.parent, tt.state); again.ID == got.ID {
				t.Errorf("the same new trace twice: %s", got.ID)
			}
		})
	}
}

func isNew(t *testing.T, got Trace) {
	t.Helper()
	if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(got.ID) || got.ID == traceID || got.Parent != "" || !got.Sampled || got.State != "" {
		t.Errorf("%+v is not a new trace", got)
	}
}

// FuzzTraceOf: exactly the values that match the specification's grammar are accepted.
func FuzzTraceOf(f *testing.F) {
	grammar := regexp.MustCompile(`^(?:00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}|[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-(?s:.*))?)$`)
	for _, s := range []string{
		"00-" + traceID + "-" + parentID + "-01", "cc-" + traceID + "-" + parentID + "-00-more", "ff-" + traceID + "-" + parentID + "-01",
		"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01", "", "----", strings.Repeat("0", 55),
	} {
		f.Add(s, "a=1")
	}
	f.Fuzz(func(t *testing.T, parent, state string) {
		got := TraceOf(parent, state)
		if len(got.ID) != 32 || len(got.State) > maxState {
			t.Fatalf("%+v", got)
		}
		found := grammar.FindStringSubmatch(parent)
		valid := found != nil && len(parent) <= maxState && !strings.HasPrefix(parent, "ff") &&
			(found[1] != "" || !strings.HasPrefix(parent, "00"))
		if valid {
			id, span := found[1]+found[3], found[2]+found[4]
			valid = strings.Trim(id, "0") != "" && strings.Trim(span, "0") != ""
			if valid && (got.ID != id || got.Parent != span) {
				t.Fatalf("%q is %+v", parent, got)
			}
		}
		if !valid && got.Parent != "" {
			t.Fatalf("%q is %+v", parent, got)
		}
	})
}
