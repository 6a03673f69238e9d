package image

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"corral/internal/lazyregexp"
)

// manifestFile lists the images of an archive written by `docker save`.
const manifestFile = "manifest.json"

// saved is an entry of manifestFile; Config and Layers are names of archive entries.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// openDocker selects the image of a docker archive and reads its configuration, which contains the digests of the
// layers.
func (s *Source) openDocker(b blobs, o Options) error {
	s.kind = "docker archive"
	text, err := document(b, manifestFile)
	if err != nil {
		return err
	}
	var images []saved
	if err := json.Unmarshal(text, &images); err != nil {
		return fmt.Errorf("%s: %w", manifestFile, err)
	}
	image, err := choose(images, o.Ref)
	if err != nil {
		return err
	}
	if text, err = configuration(b, image.Config); err != nil {
		return err
	}
	diffs, err := diffsOf(text, o.Architecture)
	var other *notForUs
	if errors.As(err, &other) {
		return fmt.Errorf("the image is for %.80q, this host is linux/%s", other.what, o.Architecture)
	}
	if err != nil {
		return err
	}
	if len(image.Layers) != len(diffs) || len(diffs) > MaxLayers {
		return fmt.Errorf("%s has %d layers, the configuration %d: the numbers must be equal, and at most %d",
			manifestFile, len(image.Layers), len(diffs), MaxLayers)
	}
	var layers []*layer
	for n, name := range image.Layers {
		layers = append(layers, &layer{
			name: fmt.Sprintf("layer %.200q", name), diff: diffs[n],
			open: func() (io.ReadCloser, error) {
				f, _, err := b.open(path.Clean(name))
				return f, err
			},
		})
	}
	s.write = func(w io.Writer) (Summary, error) { return flatten(w, layers, true, o.Limits) }
	return nil
}

// choose returns the image with the tag ref, or the only image if ref is "".
func choose(images []saved, ref string) (saved, error) {
	if len(images) > maxImages {
		return saved{}, fmt.Errorf("%s has more than %d images", manifestFile, maxImages)
	}
	var tags []string
	for _, i := range images {
		if ref != "" && slices.ContainsFunc(i.RepoTags, func(tag string) bool { return meant(tag, ref) }) {
			return i, nil
		}
		tags = append(tags, cmp.Or(strings.Join(i.RepoTags, " "), i.Config))
	}
	switch {
	case ref != "":
		return saved{}, fmt.Errorf("no image has the tag %q, available: %.400q", ref, tags)
	case len(images) == 0:
		return saved{}, errEmpty
	case len(images) > 1:
		return saved{}, several(tags)
	}
	return images[0], nil
}

// configName matches the names that tools give configurations by their digest.
var configName = lazyregexp.New(`^(?:sha256:|blobs/sha256/)?([0-9a-f]{64})(?:\.json)?$`)

// configuration returns an image's configuration. It verifies the digest if the name is one.
func configuration(b blobs, name string) ([]byte, error) {
	text, err := document(b, path.Clean(name))
	if err != nil {
		return nil, err
	}
	if m := configName().FindStringSubmatch(name); m != nil {
		v, err := newVerifier(strings.NewReader(string(text)), v1.Hash{Algorithm: "sha256", Hex: m[1]})
		if err != nil {
			return nil, err
		}
		if err := v.verify("the configuration"); err != nil {
			return nil, err
		}
	}
	return text, nil
}
