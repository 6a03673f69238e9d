package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPrepared: a directory is made once for its inputs, is complete or absent, and goes when there are others.
func TestPrepared(t *testing.T) {
	Require(t, Root)
	kept := t.TempDir()
	made := 0
	get := func(t *testing.T, input string) string {
		t.Helper()
		return Prepared(t, "words", []string{input}, func(dir string) error {
			made++
			return os.WriteFile(filepath.Join(dir, "word"), []byte(input), 0o600)
		})
	}
	t.Run("kept nowhere", func(t *testing.T) {
		t.Setenv("CORRAL_TEST_CACHE", "")
		if one := get(t, "one"); one == get(t, "one") || made != 2 {
			t.Errorf("made %d times", made)
		}
	})
	t.Setenv("CORRAL_TEST_CACHE", kept)
	made = 0
	unfinished := filepath.Join(kept, "prepared", "words", "0.part")
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		t.Fatal(err)
	}
	var one, two string
	t.Run("one", func(t *testing.T) {
		one = get(t, "one")
		info, err := os.Stat(one)
		if err != nil || info.Mode().Perm() != 0o700 || get(t, "one") != one || made != 1 {
			t.Errorf("%v, %v, made %d times", info, err, made)
		}
	})
	t.Run("one, again", func(t *testing.T) {
		if get(t, "one") != one || made != 1 {
			t.Errorf("made %d times", made)
		}
	})
	t.Run("two", func(t *testing.T) {
		two = get(t, "two")
		if b, err := os.ReadFile(filepath.Join(two, "word")); string(b) != "two" || err != nil || made != 2 {
			t.Errorf("%q, %v, made %d times", b, err, made)
		}
	})
	if left, err := filepath.Glob(filepath.Join(kept, "prepared", "words", "*")); len(left) != 1 || left[0] != two || err != nil {
		t.Errorf("%q, %v", left, err)
	}
}
