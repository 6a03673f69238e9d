package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// savedImage returns an archive of images as `docker save` writes it.
func savedImage(t *testing.T, tags ...string) []byte {
	t.Helper()
	images := map[name.Reference]v1.Image{}
	for _, tag := range tags {
		ref, err := name.NewTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		images[ref] = imageOf(t, small(), []*tar.Header{text("etc/tag", tag)})
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(images, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestChoice(t *testing.T) {
	here, foreign := runtime.GOARCH, "riscv64"
	ours := imageFor(t, here, small())
	theirs := imageFor(t, foreign, []*tar.Header{text("foreign", "")})
	platform := func(architecture, variant string) v1.Descriptor {
		return v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture, Variant: variant}}
	}
	index := func(adds ...mutate.IndexAddendum) v1.ImageIndex { return mutate.AppendManifests(empty.Index, adds...) }
	named := func(i mutate.Appendable, ref string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": ref}}}
	}
	containerd := func(i mutate.Appendable, name, tag string) mutate.IndexAddendum {
		a := named(i, tag)
		a.Annotations["io.containerd.image.name"] = name
		return a
	}
	second := imageOf(t, []*tar.Header{text("second", "")})
	variant := imageOf(t, []*tar.Header{text("variant", "")})
	both := index(
		mutate.IndexAddendum{Add: theirs, Descriptor: platform(foreign, "")},
		mutate.IndexAddendum{Add: ours, Descriptor: platform(here, "")},
		mutate.IndexAddendum{Add: variant, Descriptor: platform(here, "v9")},
		mutate.IndexAddendum{Add: imageOf(t), Descriptor: platform("unknown", "")},
	)
	chart := mutate.ConfigMediaType(ours, "application/vnd.cncf.helm.config.v1+json")
	tests := []struct {
		name  string
		index v1.ImageIndex
		ref   string
		has   string
		err   string
	}{
		{"one of several", both, "", "etc/passwd", ""},
		{"an index in it", index(mutate.IndexAddendum{Add: both}), "", "etc/passwd", ""},
		{"without a platform", index(mutate.IndexAddendum{Add: theirs}, mutate.IndexAddendum{Add: ours}), "", "etc/passwd", ""},
		{"twice the same", index(named(ours, "a"), named(ours, "b")), "", "etc/passwd", ""},
		{"beside a chart", index(mutate.IndexAddendum{Add: chart}, mutate.IndexAddendum{Add: ours}), "", "etc/passwd", ""},
		{"by name", index(named(ours, "a"), named(second, "b")), "b", "second", ""},
		{"an index by name", index(named(both, "a"), named(second, "b")), "a", "etc/passwd", ""},
		{"as docker calls it", index(containerd(ours, "docker.io/library/a:1", "1"), containerd(second, "docker.io/library/b:1", "1")), "b:1", "second", ""},
		{"in full", index(containerd(ours, "docker.io/library/a:1", "1"), containerd(second, "docker.io/b/b:latest", "1")), "docker.io/b/b", "second", ""},
		{"of another place", index(containerd(ours, "example.org/library/a:1", "1")), "a:1", "", `with the name "a:1", available: "example.org/library/a:1"`},
		{"several", index(named(ours, "a"), named(second, "b")), "", "", `there are several images: "a", "b"`},
		{"no such name", index(named(ours, "a"), named(second, "b")), "c", "", `with the name "c", available: "a", "b"`},
		{"foreign", index(mutate.IndexAddendum{Add: theirs, Descriptor: platform(foreign, "")}), "", "", `available: "linux/riscv64"`},
		{"foreign and untold", index(mutate.IndexAddendum{Add: theirs}), "", "", `available: "linux/riscv64"`},
		{"a chart alone", index(mutate.IndexAddendum{Add: chart}), "", "", `available: "application/vnd.cncf.helm.config.v1+json"`},
		{"nothing", empty.Index, "", "", "available: nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := generous
			o.Ref = tt.ref
			where := t.TempDir()
			writeLayout(t, where, tt.index)
			_, data, _, err := flat(t, where, o)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := listing(t, data)[tt.has]; !ok {
				t.Errorf("%q is not in %v", tt.has, listing(t, data))
			}
		})
	}
}

func TestDockerChoice(t *testing.T) {
	path := written(t, savedImage(t, "example/a:1", "example/b:latest"))
	for ref, want := range map[string]string{"example/a:1": "example/a:1", "example/b": "example/b:latest"} {
		o := generous
		o.Ref = ref
		_, data, _, err := flat(t, path, o)
		if err != nil || listing(t, data)["etc/tag"] != want {
			t.Errorf("%s: %v, %v", ref, err, listing(t, data)["etc/tag"])
		}
	}
	for ref, want := range map[string]string{"": "there are several images", "example/c": `no image has the tag "example/c"`} {
		o := generous
		o.Ref = ref
		if _, _, _, err := flat(t, path, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if _, _, _, err := flat(t, written(t, dockerSaved(t, imageFor(t, "riscv64", small()))), generous); err == nil ||
		!strings.Contains(err.Error(), `the image is for "linux/riscv64", this host is linux/`) {
		t.Errorf("foreign: %v", err)
	}
}

// TestDockerLinks checks links to layers, which old engines wrote for a layer that occurs twice.
func TestDockerLinks(t *testing.T) {
	layer := archive(t, small()...)
	diff, _, err := v1.SHA256(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":[%q,%q]}}`, runtime.GOARCH, diff, diff)
	manifest := `[{"Config":"config","RepoTags":null,"Layers":["one/layer.tar","two/layer.tar"]}]`
	image := func(link *tar.Header) string {
		return written(t, archive(t, dir("one"), text("one/layer.tar", string(layer)), dir("two"), link, text("config", config), text("manifest.json", manifest)))
	}
	_, data, _, err := flat(t, image(symlink("two/layer.tar", "../one/layer.tar")), generous)
	if err != nil {
		t.Fatal(err)
	}
	sameListing(t, listing(t, data), smallTree())
	if _, _, _, err := flat(t, image(symlink("two/layer.tar", "../two/layer.tar")), generous); err == nil || !strings.Contains(err.Error(), "does not lead to a file") {
		t.Errorf("a loop: %v", err)
	}
	if _, _, _, err := flat(t, image(symlink("two/layer.tar", "/etc/passwd")), generous); err == nil || !strings.Contains(err.Error(), "is not in the archive") {
		t.Errorf("out: %v", err)
	}
}
