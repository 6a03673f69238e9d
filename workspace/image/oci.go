package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Files of an OCI layout, see image-layout.md of the OCI image specification.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
)

// A layout is an OCI layout: blobs named by their digests, and an index of the images.
type layout struct {
	blobs   blobs
	options Options
	indexes int         // number of indexes read
	images  []candidate // the candidates
	others  []string    // the names or platforms of the images that do not match
}

// A candidate is an image that matches the options as far as the index tells.
type candidate struct {
	descriptor v1.Descriptor
	ref        string
	variant    string // of the architecture
}

// openLayout selects the image and reads its documents.
func (s *Source) openLayout(b blobs, o Options) error {
	s.kind = "OCI layout"
	l := &layout{blobs: b, options: o}
	if err := l.version(); err != nil {
		return err
	}
	text, err := document(b, indexFile)
	if err != nil {
		return err
	}
	if err := l.collect(text, indexFile, o.Ref == "", ""); err != nil {
		return err
	}
	layers, err := l.choose()
	if err != nil {
		return err
	}
	s.write = func(w io.Writer) (Summary, error) { return flatten(w, layers, true, o.Limits) }
	return nil
}

func (l *layout) version() error {
	text, err := document(l.blobs, layoutFile)
	if err != nil {
		return err
	}
	var v struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("%s: %w", layoutFile, err)
	}
	if !strings.HasPrefix(v.Version, "1.") {
		return fmt.Errorf("%s has version %.40q, must be 1", layoutFile, v.Version)
	}
	return nil
}

// collect finds the images of an index and of its nested indexes. wanted is false until one has the requested name.
func (l *layout) collect(text []byte, name string, wanted bool, ref string) error {
	if l.indexes++; l.indexes > maxIndexes {
		return fmt.Errorf("more than %d indexes", maxIndexes)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, d := range index.Manifests {
		if len(l.images)+len(l.others) >= maxImages {
			return fmt.Errorf("more than %d images", maxImages)
		}
		names := namesOf(d)
		named := cmp.Or(append(names, ref)...)
		if !wanted && !slices.ContainsFunc(names, func(name string) bool { return meant(name, l.options.Ref) }) {
			l.others = append(l.others, named)
			continue
		}
		switch {
		case d.MediaType.IsIndex():
			nested, err := l.verified(d)
			if err != nil {
				return err
			}
			if err := l.collect(nested, d.Digest.String(), true, named); err != nil {
				return err
			}
		case d.MediaType.IsImage():
			l.consider(d, named)
		default:
			l.others = append(l.others, string(d.MediaType))
		}
	}
	return nil
}

// namesOf returns the names that an index gives an image: containerd's full name, and that of the specification.
func namesOf(d v1.Descriptor) []string {
	names := []string{d.Annotations["io.containerd.image.name"], d.Annotations["org.opencontainers.image.ref.name"]}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// meant reports whether ref refers to name, with the parts that the docker command lets users omit.
func meant(name, ref string) bool {
	short := strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
	return slices.Contains([]string{name, short, strings.TrimSuffix(name, ":latest"), strings.TrimSuffix(short, ":latest")}, ref)
}

// consider adds an image to the candidates if its platform may match.
func (l *layout) consider(d v1.Descriptor, ref string) {
	c := candidate{descriptor: d, ref: ref}
	if p := d.Platform; p != nil {
		if p.OS != "linux" || p.Architecture != l.options.Architecture {
			l.others = append(l.others, p.String())
			return
		}
		c.variant = p.Variant
	}
	same := func(o candidate) bool { return o.descriptor.Digest == d.Digest }
	if !slices.ContainsFunc(l.images, same) {
		l.images = append(l.images, c)
	}
}

// choose returns the layers of the only matching image.
func (l *layout) choose() ([]*layer, error) {
	var found []candidate
	var layers []*layer
	for _, c := range l.images {
		these, err := l.layers(c.descriptor)
		var other *notForUs
		if errors.As(err, &other) {
			l.others = append(l.others, other.what)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", c.descriptor.Digest, err)
		}
		if len(found) == 0 || rank(c.variant) > rank(found[0].variant) {
			found, layers = []candidate{c}, these
		} else if rank(c.variant) == rank(found[0].variant) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return nil, l.none()
	case 1:
		return layers, nil
	}
	var refs []string
	for _, c := range found {
		refs = append(refs, cmp.Or(c.ref, c.descriptor.Digest.String()))
	}
	return nil, several(refs)
}

// rank orders variants of an architecture. An image without a variant runs everywhere; for ARM, Linux distributions
// build v7 and v8.
func rank(variant string) int { return slices.Index([]string{"v6", "v8", "v7", ""}, variant) }

func (l *layout) none() error {
	for n, o := range l.others {
		l.others[n] = fmt.Sprintf("%.80q", cmp.Or(o, "an image without a name"))
	}
	slices.Sort(l.others)
	there := slices.Compact(l.others)
	if len(there) > 10 {
		there = append(there[:10], "…")
	}
	what := "an image for linux/" + l.options.Architecture
	if l.options.Ref != "" {
		what = fmt.Sprintf("%s with the name %q", what, l.options.Ref)
	}
	return fmt.Errorf("there is no %s, available: %s", strings.TrimPrefix(what, "an "), cmp.Or(strings.Join(there, ", "), "nothing"))
}

func several(refs []string) error {
	for n, r := range refs {
		refs[n] = fmt.Sprintf("%.200q", r)
	}
	if len(refs) > 10 {
		refs = append(refs[:10], "…")
	}
	return fmt.Errorf("there are several images: %s\nhint: --ref selects one by its name", strings.Join(refs, ", "))
}

// notForUs is the error for an artifact that is not an image, or an image for another platform.
type notForUs struct{ what string }

func (n *notForUs) Error() string { return "not an image for this host: " + n.what }

// layers reads an image's manifest and configuration, and returns its layers, the lowest first.
func (l *layout) layers(d v1.Descriptor) ([]*layer, error) {
	text, err := l.verified(d)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if !m.Config.MediaType.IsConfig() {
		return nil, &notForUs{string(m.Config.MediaType)} // a signature or chart: a layout may contain any artifact
	}
	if text, err = l.verified(m.Config); err != nil {
		return nil, err
	}
	diffs, err := diffsOf(text, l.options.Architecture)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != len(diffs) || len(diffs) > MaxLayers {
		return nil, fmt.Errorf("the manifest has %d layers, the configuration %d: the numbers must be equal, and at most %d",
			len(m.Layers), len(diffs), MaxLayers)
	}
	var all []*layer
	for n, d := range m.Layers {
		if !d.MediaType.IsLayer() {
			return nil, &notForUs{string(d.MediaType)} // an attestation has an image's configuration
		}
		all = append(all, &layer{
			name: "layer " + d.Digest.String(), stored: d.Digest, diff: diffs[n],
			open: func() (io.ReadCloser, error) { return l.open(d) },
		})
	}
	return all, nil
}

// diffsOf parses a configuration and returns the digests of the layers' decompressed archives.
func diffsOf(text []byte, architecture string) ([]v1.Hash, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	if c.OS != "linux" || c.Architecture != architecture {
		return nil, &notForUs{c.OS + "/" + c.Architecture}
	}
	for _, d := range c.RootFS.DiffIDs {
		if d == (v1.Hash{}) {
			return nil, errors.New("the configuration has a layer without a digest")
		}
	}
	return c.RootFS.DiffIDs, nil
}

// open opens a blob and checks its size. The reader must verify its digest.
func (l *layout) open(d v1.Descriptor) (io.ReadCloser, error) {
	if d.Digest == (v1.Hash{}) {
		return nil, errors.New("a descriptor has no digest")
	}
	f, size, err := l.blobs.open("blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", d.Digest, err)
	}
	if size != d.Size {
		_ = f.Close()
		return nil, fmt.Errorf("blob %s must have %d bytes, got %d: the file was modified or damaged", d.Digest, d.Size, size)
	}
	return f, nil
}

// verified returns a document whose digest it has verified.
func (l *layout) verified(d v1.Descriptor) ([]byte, error) {
	if d.Size > MaxDocument {
		return nil, fmt.Errorf("blob %s has %d bytes, above the maximum of %d", d.Digest, d.Size, MaxDocument)
	}
	f, err := l.open(d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	v, err := newVerifier(f, d.Digest)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(v, MaxDocument+1))
	if err != nil {
		return nil, err
	}
	return text, v.verify("blob " + d.Digest.String())
}
