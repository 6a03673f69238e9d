package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"corral/workspace/image/unpack"
)

var made = time.Unix(1_600_000_000, 0)

// generous limits are not reached, except in tests of limits.
var generous = Options{Limits: Limits{Entries: 100_000, Bytes: 1 << 30}}

func dir(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: made}
}

// text returns the header of a file; Uname holds the content for archive.
func text(name, content string) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: made, Size: int64(len(content)), Uname: content,
	}
}

func symlink(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func link(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func other(kind byte, name string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: 0o644}
}

func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		plain := *h
		plain.Uname = ""
		if err := w.WriteHeader(&plain); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Uname); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// packed is a layer with any compression: the library only writes gzip.
type packed struct {
	v1.Layer
	diff v1.Hash
}

func (p packed) DiffID() (v1.Hash, error) { return p.diff, nil }

func packedLayer(t testing.TB, headers []*tar.Header, pack func(testing.TB, []byte) []byte, kind types.MediaType) v1.Layer {
	t.Helper()
	data := archive(t, headers...)
	diff, _, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return packed{static.NewLayer(pack(t, data), kind), diff}
}

func plain(_ testing.TB, data []byte) []byte { return data }

// imageFor returns an image of layers, the lowest first, for an architecture.
func imageFor(t testing.TB, architecture string, layers ...[]*tar.Header) v1.Image {
	t.Helper()
	var all []v1.Layer
	for n, headers := range layers {
		switch n % 3 {
		case 0:
			all = append(all, packedLayer(t, headers, gzipped, types.OCILayer))
		case 1:
			all = append(all, packedLayer(t, headers, zstandard, types.OCILayerZStd))
		case 2:
			all = append(all, packedLayer(t, headers, plain, types.OCIUncompressedLayer))
		}
	}
	return withLayers(t, architecture, all...)
}

func withLayers(t testing.TB, architecture string, layers ...v1.Layer) v1.Image {
	t.Helper()
	i, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", architecture
	if i, err = mutate.ConfigFile(i, c); err != nil {
		t.Fatal(err)
	}
	return i
}

func imageOf(t testing.TB, layers ...[]*tar.Header) v1.Image {
	t.Helper()
	return imageFor(t, runtime.GOARCH, layers...)
}

// layoutOf writes images to an OCI layout.
func layoutOf(t testing.TB, images ...mutate.Appendable) string {
	t.Helper()
	where := t.TempDir()
	p, err := ocilayout.Write(where, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		switch i := i.(type) {
		case v1.Image:
			err = p.AppendImage(i)
		case v1.ImageIndex:
			err = p.AppendIndex(i)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return where
}

// tarred packs the files of a directory into an archive.
func tarred(t testing.TB, from string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func written(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// flat opens the source at path and writes it to memory.
func flat(t testing.TB, path string, o Options) (string, []byte, Summary, error) {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		return "", nil, Summary{}, err
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var b bytes.Buffer
	sum, err := s.Write(&b)
	return s.Kind(), b.Bytes(), sum, err
}

// listing describes the entries of a flattened archive by name.
func listing(t testing.TB, data []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatal("no end record:", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			return all
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if _, ok := all[name]; ok {
			t.Errorf("%q occurs twice", name)
		}
		switch h.Typeflag {
		case tar.TypeReg:
			all[name] = string(content)
		case tar.TypeDir:
			all[name] = fmt.Sprintf("/%o", h.Mode)
		case tar.TypeSymlink:
			all[name] = "-> " + h.Linkname
		case tar.TypeLink:
			all[name] = "= " + h.Linkname
		default:
			t.Errorf("%q is of kind %q", name, h.Typeflag)
		}
	}
}

// unpacked unpacks an archive, and checks that the unpacker's counts equal the writer's.
func unpacked(t testing.TB, data []byte, sum Summary) string {
	t.Helper()
	where := t.TempDir()
	totals, err := unpack.Unpack(bytes.NewReader(data), where)
	if err != nil {
		t.Fatal(err)
	}
	if totals != sum.Totals {
		t.Errorf("written:  %s\nunpacked: %s", sum.Totals, totals)
	}
	return where
}

func writeLayout(t testing.TB, where string, index v1.ImageIndex) {
	t.Helper()
	if _, err := ocilayout.Write(where, index); err != nil {
		t.Fatal(err)
	}
}
