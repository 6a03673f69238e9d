package config

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// entries writes a configuration file with content and entry files of principals by name, and returns the path of the former.
func entries(t *testing.T, content string, principals map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	dir := filepath.Join(filepath.Dir(path), principalsDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{path: content}
	for name, entry := range principals {
		files[filepath.Join(dir, name)] = entry
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

const oldEntry = "name: ci\ntoken_sha256: \"" + hash1 + "\"\n"

// TestRotate: the new token replaces the former one, which is accepted for the rest of its time at most, and the file keeps its
// mode.
func TestRotate(t *testing.T) {
	now := At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	const dates = "created: 2025-12-31T00:00:00Z\nexpires: 2026-01-01T00:30:00Z\n"
	for _, tt := range []struct {
		name, entry string
		rotation    Rotation
		want        string // the keys after token_sha256
	}{
		{"at once", oldEntry, Rotation{}, "created: \"2026-01-01T00:00:00Z\"\n"},
		{
			"with grace", oldEntry,
			Rotation{Grace: time.Hour},
			"created: \"2026-01-01T00:00:00Z\"\nprevious_sha256: \"" + hash1 + "\"\nprevious_expires: \"2026-01-01T01:00:00Z\"\n",
		},
		{
			"as long as before", oldEntry + dates,
			Rotation{Grace: time.Hour},
			"created: \"2026-01-01T00:00:00Z\"\nexpires: \"2026-01-02T00:30:00Z\"\nprevious_sha256: \"" + hash1 +
				"\"\nprevious_expires: \"2026-01-01T00:30:00Z\"\n",
		},
		{"with a life", oldEntry + dates, Rotation{Life: time.Minute}, "created: \"2026-01-01T00:00:00Z\"\nexpires: \"2026-01-01T00:01:00Z\"\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := entries(t, emptyFile, map[string]string{"ci.yaml": tt.entry, "z.yaml": "name: z\ntoken_sha256: \"" + hash2 + "\"\n"})
			file := filepath.Join(filepath.Dir(path), principalsDir, "ci.yaml")
			if err := os.Chmod(file, 0o640); err != nil {
				t.Fatal(err)
			}
			tt.rotation.Name, tt.rotation.Now, tt.rotation.Hash = "ci", now, sha256.Sum256([]byte("3"))
			if err := apply(path, Edit{Rotate: &tt.rotation}); err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(contentOf(t, file), "token_sha256: \"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce\"\n")
			if rest != tt.want {
				t.Errorf("%q, want %q after the new token", contentOf(t, file), tt.want)
			}
			if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

// TestPrincipalRefused: a principal that does not exist, that a list has, or whose new token has no life is not changed.
func TestPrincipalRefused(t *testing.T) {
	const listed = "version: 1\nprincipals:\n  - name: listed\n    token_sha256: \"" + hash2 + "\"\n"
	path := entries(t, listed, map[string]string{"ci.yaml": oldEntry + "expires: 2026-01-01T00:30:00Z\n"})
	before := contentOf(t, path) + contentOf(t, filepath.Join(filepath.Dir(path), principalsDir, "ci.yaml"))
	rotate := func(name string) Edit {
		return Edit{Rotate: &Rotation{Name: name, Now: 1, Hash: sha256.Sum256([]byte("3"))}}
	}
	for want, edit := range map[string]Edit{
		"there is no principal \"cj\"\nhint: did you mean \"ci\"?":                    {RemovePrincipal: "cj"},
		"there is no principal \"something else\"":                                    rotate("something else"),
		"principal \"listed\" is in the list of " + path + "\nhint: change its entry": {RemovePrincipal: "listed"},
		"it is on lines 3 to 4":                                                       rotate("listed"),
		"does not say when it was created":                                            rotate("ci"),
	} {
		if err := apply(path, edit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if after := contentOf(t, path) + contentOf(t, filepath.Join(filepath.Dir(path), principalsDir, "ci.yaml")); after != before {
		t.Errorf("changed to %q", after)
	}
	if err := apply(path, Edit{RemovePrincipal: "ci"}); err != nil || namesIn(t, filepath.Join(filepath.Dir(path), principalsDir)) != "" {
		t.Errorf("removed: %v", err)
	}
}

// TestUpdateEntryRefused: an edit changes entry files beside the configuration file and nothing else, within their bounds.
func TestUpdateEntryRefused(t *testing.T) {
	path := entries(t, emptyFile, map[string]string{"ci.yaml": oldEntry})
	dir := filepath.Dir(path)
	some := []byte("x")
	for name, change := range map[string]Change{
		"elsewhere":                {Name: filepath.Join(dir, "other.d", "x.yaml"), Content: some},
		"another directory":        {Name: "/etc/corral/principals.d/x.yaml", Content: some},
		"a hidden file":            {Name: filepath.Join(dir, principalsDir, ".x.yaml"), Content: some},
		"one that exists":          {Name: filepath.Join(dir, principalsDir, "ci.yaml"), Content: some},
		"one that does not, again": {Name: filepath.Join(dir, principalsDir, "no.yaml"), Content: some, Replace: true},
		"one that does not, away":  {Name: filepath.Join(dir, principalsDir, "no.yaml")},
		"too large":                {Name: filepath.Join(dir, principalsDir, "x.yaml"), Content: make([]byte, maxEntrySize+1)},
	} {
		err := Update(path, LoadOptions{}, func(Files) (Change, error) { return change, nil })
		if err == nil || !strings.Contains(err.Error(), change.Name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := namesIn(t, dir) + ": " + namesIn(t, filepath.Join(dir, principalsDir)); got != "c.yaml principals.d: ci.yaml" {
		t.Errorf("there are %s", got)
	}
}
