package image

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestTampered checks that a change of any blob of a layout is an error that names it, with no output.
func TestTampered(t *testing.T) {
	whole := layoutOf(t, imageOf(t, small(), []*tar.Header{text("a", "a")}, []*tar.Header{text("b", "b")}))
	blobs, err := filepath.Glob(whole + "/blobs/sha256/*")
	if err != nil || len(blobs) != 5 { // manifest, configuration, three layers
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	changes := map[string]func([]byte) []byte{
		"a bit":      func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"longer":     func(b []byte) []byte { return append(b, 0) },
		"shorter":    func(b []byte) []byte { return b[:len(b)-1] },
		"of zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
		"with space": func(b []byte) []byte { b[len(b)-1] = ' '; return b },
	}
	for how, change := range changes {
		for _, blob := range blobs {
			content, err := os.ReadFile(blob)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(blob, change(bytes.Clone(content)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{whole, written(t, tarred(t, whole))} {
				_, data, _, err := flat(t, path, generous)
				if err == nil || !strings.Contains(err.Error(), filepath.Base(blob)) {
					t.Errorf("%s, %s: %v", filepath.Base(blob), how, err)
				}
				if len(data) > 0 {
					t.Errorf("%s, %s: something was written", filepath.Base(blob), how)
				}
			}
			if err := os.WriteFile(blob, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, blob := range blobs {
		if err := os.Rename(blob, blob+"-"); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := flat(t, whole, generous); err == nil || !strings.Contains(err.Error(), filepath.Base(blob)) {
			t.Errorf("%s is missing: %v", filepath.Base(blob), err)
		}
		if err := os.Rename(blob+"-", blob); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherArchive checks that a layer is refused whose blob has the right digest, but whose archive does not match
// the configuration.
func TestOtherArchive(t *testing.T) {
	honest := packedLayer(t, small(), gzipped, types.OCILayer)
	lying := packed{packedLayer(t, []*tar.Header{text("other", "")}, gzipped, types.OCILayer), honest.(packed).diff}
	for _, path := range []string{
		layoutOf(t, withLayers(t, runtime.GOARCH, lying)),
		written(t, dockerSaved(t, withLayers(t, runtime.GOARCH, lying))),
	} {
		kind, _, _, err := flat(t, path, generous)
		if err == nil || !strings.Contains(err.Error(), honest.(packed).diff.String()) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestDockerConfiguration checks that a configuration must match the digest in its name.
func TestDockerConfiguration(t *testing.T) {
	data := dockerSaved(t, imageOf(t, small()))
	changed := bytes.Replace(data, []byte(`"os":"linux"`), []byte(`"os":"linuX"`), 1)
	if bytes.Equal(data, changed) {
		t.Fatal("nothing was changed")
	}
	if _, _, _, err := flat(t, written(t, changed), generous); err == nil || !strings.Contains(err.Error(), "the configuration must have the digest sha256:") {
		t.Errorf("got %v", err)
	}
}
