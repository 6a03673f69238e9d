package seccomp

import "testing"

// TestScannerProfile checks that the scanner's profile is strict plus openat2, and not available to jobs.
func TestScannerProfile(t *testing.T) {
	strict := map[string]Rule{}
	for _, r := range Table("strict") {
		strict[r.Name] = r
	}
	for _, r := range Table(Scanner) {
		want := strict[r.Name]
		if r.Name == "openat2" {
			want.Verdict = Allow
		}
		if r != want {
			t.Errorf("%s: %+v, want %+v", r.Name, r, want)
		}
	}
	for _, name := range Profiles() {
		if name == Scanner {
			t.Error("a job can request the scanner's profile")
		}
	}
	if _, err := Compile(Scanner, "amd64"); err != nil {
		t.Error(err)
	}
}
