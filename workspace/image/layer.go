package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// A layer is a tar archive, compressed or not, with its expected digests. A plain archive is handled as a layer, too.
type layer struct {
	name   string // for errors
	open   func() (io.ReadCloser, error)
	stored v1.Hash // digest of its bytes; zero if unknown
	diff   v1.Hash // digest of the decompressed archive; zero if unknown
}

// A meter bounds the input of all layers together.
type meter struct{ entries, bytes int64 }

func newMeter(limits Limits) *meter {
	// An empty file takes at most a header, a long name and the end of the archive.
	return &meter{entries: readFactor * limits.Entries, bytes: readFactor * (limits.Bytes + 4096*limits.Entries)}
}

// A metered reader returns an error when its meter is exhausted.
type metered struct {
	r io.Reader
	m *meter
}

func (r metered) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.m.bytes -= int64(n); r.m.bytes < 0 {
		return 0, errors.New("the input is far larger than a root file system may be\nhint: --disk sets the maximum size")
	}
	return n, err
}

// each calls visit with each entry and its index, and verifies the digests at the end.
func (l *layer) each(m *meter, visit func(seq int, h *tar.Header, content io.Reader) error) error {
	err := l.read(m, visit)
	if err != nil && l.name != "" {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return err
}

func (l *layer) read(m *meter, visit func(seq int, h *tar.Header, content io.Reader) error) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer f.Close()
	stored, err := newVerifier(f, l.stored)
	if err != nil {
		return err
	}
	plain, err := decompress(stored)
	if err != nil {
		return err
	}
	defer plain.Close()
	diff, err := newVerifier(metered{plain, m}, l.diff)
	if err != nil {
		return err
	}
	if err := entries(diff, m, visit); err != nil {
		return err
	}
	if err := diff.verify("the decompressed archive"); err != nil {
		return err
	}
	return stored.verify("the blob")
}

func entries(r io.Reader, m *meter, visit func(seq int, h *tar.Header, content io.Reader) error) error {
	archive := tar.NewReader(r)
	for seq := 0; ; seq++ {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, tar.ErrInsecurePath): // apply checks paths
			return fmt.Errorf("not a tar archive, or damaged after %d entries: %w", seq, err)
		}
		if m.entries--; m.entries < 0 {
			return errors.New("the input has far more entries than a root file system may have\nhint: --inodes sets the maximum number of files")
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // git archive writes one with a comment
		}
		if err := visit(seq, h, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// A verifier hashes the bytes read through it.
type verifier struct {
	r    io.Reader
	want v1.Hash
	hash hash.Hash // nil without an expected digest
}

func newVerifier(r io.Reader, want v1.Hash) (*verifier, error) {
	v := &verifier{r: r, want: want}
	if want == (v1.Hash{}) {
		return v, nil
	}
	var err error
	if v.hash, err = v1.Hasher(want.Algorithm); err != nil {
		return nil, err
	}
	v.r = io.TeeReader(r, v.hash)
	return v, nil
}

func (v *verifier) Read(p []byte) (int, error) { return v.r.Read(p) }

// verify reads the rest and compares the digest.
func (v *verifier) verify(what string) error {
	if _, err := io.Copy(io.Discard, v.r); err != nil {
		return err
	}
	if v.hash == nil {
		return nil
	}
	if got := fmt.Sprintf("%x", v.hash.Sum(nil)); got != v.want.Hex {
		return fmt.Errorf("%s must have the digest %s, got %s: the file was modified or damaged", what, v.want, got)
	}
	return nil
}

// compressions are recognized by their first bytes. Those without a function are not supported.
var compressions = []struct {
	magic []byte
	name  string
	open  func(io.Reader) (io.ReadCloser, error)
}{
	{[]byte{0x1f, 0x8b}, "gzip", func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{[]byte{0x28, 0xb5, 0x2f, 0xfd}, "zstd", openZstd},
	{[]byte("\xfd7zXZ\x00"), "xz", nil},
	{[]byte("BZh"), "bzip2", nil},
}

func openZstd(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// decompress returns the contents of r, decompressed if necessary.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 128<<10)
	head, err := buffered.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, c := range compressions {
		if !bytes.HasPrefix(head, c.magic) {
			continue
		}
		if c.open == nil {
			return nil, fmt.Errorf("the compression %s is not supported\nhint: decompress the file first, or use gzip or zstd", c.name)
		}
		return c.open(buffered)
	}
	return io.NopCloser(buffered), nil
}

// compressed reports whether a file that begins with head is compressed.
func compressed(head []byte) bool {
	for _, c := range compressions {
		if bytes.HasPrefix(head, c.magic) {
			return true
		}
	}
	return false
}
