package directory

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRepository: the nearest directory with .git counts, whatever .git is.
func TestRepository(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"a/.git", "a/b/c", "x/y"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "a/b/.git"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"a": "a", "a/b": "a/b", "a/b/c": "a/b", "a/none/there": "a", "x/y": ""} {
		if want != "" {
			want = filepath.Join(top, want)
		}
		if got := Repository(filepath.Join(top, dir)); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	if got := Repository("a"); got != "" {
		t.Errorf("a relative path: %q", got)
	}
}
