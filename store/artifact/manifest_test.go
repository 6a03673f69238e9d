package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestHandle: each repository's id makes a handle, which has the time and nothing but safe characters, unless it is too
// long.
func TestHandle(t *testing.T) {
	for _, repo := range []string{"", "a", "a-b_c", "ünï", "a/../b", "-", strings.Repeat("r", 128)} {
		handle, made := newHandle(repo, time.UnixMilli(1234567890123))
		at, ok := parseHandle(handle)
		if !made || !ok || at.UnixMilli() != 1234567890123 || !strings.HasPrefix(handle, handlePrefix(repo)) || strings.ContainsAny(handle, "/.") {
			t.Errorf("%q: %q, %v, %v", repo, handle, at, ok)
		}
	}
	handle, made := newHandle(strings.Repeat("r", 256), time.Now())
	if _, ok := parseHandle(handle); made || ok {
		t.Errorf("%q", handle)
	}
}

const someHandle = "runtime-x-1-0123456789abcdef"

// TestParse: a manifest is read back as it was written; each value out of bounds is refused.
func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(m *Manifest)
		want   string // in the error; "" for none
	}{
		"valid":               {func(*Manifest) {}, ""},
		"with a gap":          {func(m *Manifest) { m.StdoutGap = &Gap{Offset: 1, Marker: 2, Bytes: 3, Lines: 4} }, ""},
		"many samples":        {func(m *Manifest) { m.Run = &Run{Samples: make([]Sample, 120)} }, ""},
		"too many samples":    {func(m *Manifest) { m.Run = &Run{Samples: make([]Sample, 121)} }, "121 samples"},
		"another version":     {func(m *Manifest) { m.Version = 2 }, "version 2 is not supported"},
		"another artifact":    {func(m *Manifest) { m.ArtifactID = "y" }, "another artifact"},
		"another repository":  {func(m *Manifest) { m.RepoID = "y" }, "another repository's"},
		"expired before made": {func(m *Manifest) { m.ExpiresAt = m.CreatedAt.Add(-1) }, "expires before"},
		"no hash":             {func(m *Manifest) { m.StdoutSHA256 = "" }, "stdout: the SHA-256"},
		"short hash":          {func(m *Manifest) { m.StderrSHA256 = "ab" }, "stderr: the SHA-256"},
		"negative size":       {func(m *Manifest) { m.StderrBytes = -1 }, "stderr: a size"},
		"large size":          {func(m *Manifest) { m.StderrBytes = maxStream + 1 }, "stderr: a size"},
		"negative lines":      {func(m *Manifest) { m.StdoutLines = -1 }, "stdout: a size"},
		"negative total":      {func(m *Manifest) { m.TotalStdout = -1 }, "stdout: a size"},
		"gap after the end":   {func(m *Manifest) { m.StdoutGap = &Gap{Offset: 101} }, "stdout: the gap"},
		"marker overflows":    {func(m *Manifest) { m.StdoutGap = &Gap{Offset: 50, Marker: 1<<63 - 1} }, "stdout: the gap"},
		"gap of many lines":   {func(m *Manifest) { m.StdoutGap = &Gap{Lines: 11} }, "stdout: the gap"},
		"gap of few bytes":    {func(m *Manifest) { m.StdoutGap = &Gap{Bytes: -1} }, "stdout: the gap"},
	} {
		m := &Manifest{
			Version: manifestVersion, ArtifactID: someHandle, RepoID: "x", StdoutBytes: 100, StdoutLines: 10, TotalStdout: 200,
			StdoutSHA256: strings.Repeat("ab", 32), StderrSHA256: strings.Repeat("cd", 32),
		}
		tt.change(m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseManifest(someHandle, bytes.NewReader(text))
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			again, _ := json.Marshal(back)
			if !bytes.Equal(text, again) {
				t.Errorf("%s: %s\nwas %s", name, again, text)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"not JSON": "{", "too large": "{}" + strings.Repeat(" ", 256<<10)} {
		if _, err := parseManifest(someHandle, strings.NewReader(text)); err == nil || errors.Is(err, errNoManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseManifest(someHandle, strings.NewReader("")); !errors.Is(err, errNoManifest) {
		t.Error(err)
	}
	if _, err := parseManifest(someHandle, io.MultiReader(strings.NewReader("{"), brokenReader{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestMark: a mark tells principals and artifacts apart.
func TestMark(t *testing.T) {
	marks := map[string]bool{}
	for _, who := range [][2]string{{"h", "a"}, {"h", "b"}, {"g", "a"}, {"ha", ""}} {
		marks[string(ownerMark(who[0], who[1]))] = true
	}
	if len(marks) != 4 {
		t.Errorf("%d different marks of 4", len(marks))
	}
}

// FuzzManifest: parsing any file fails or yields values within bounds.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(someHandle, bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, name := range []string{Stdout, Stderr} {
			if k := m.Stream(name); k.Bytes < 0 || k.Bytes > maxStream || len(k.SHA256) != 64 {
				t.Errorf("%+v", k)
			}
		}
	})
}
