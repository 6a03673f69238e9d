package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
	"corral/store/at"
)

// Errors of reading. They are wrapped with details.
var (
	// ErrNotFound is returned if there is no such artifact.
	ErrNotFound = errors.New("no such artifact")
	// ErrCorrupt is returned for an artifact that differs from what was stored.
	ErrCorrupt = errors.New("the artifact is damaged")
)

// An Artifact is a stored artifact that is open for reading. The caller must close it.
type Artifact struct {
	Manifest *manifest.Manifest

	of  *Dir
	dir int
}

// Open opens an artifact. It does not check who may read it, or whether it has expired. The error is ErrNotFound,
// ErrCorrupt, or one of the file system.
func (d *Dir) Open(handle string) (*Artifact, error) {
	if d.fd < 0 {
		return nil, ErrNotFound
	}
	dir, err := at.Open(d.fd, handle, at.Dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			err = ErrNotFound
		}
		return nil, err
	}
	m, err := d.readManifest(handle, dir)
	if err != nil {
		unix.Close(dir)
		return nil, err
	}
	return &Artifact{Manifest: m, of: d, dir: dir}, nil
}

func (d *Dir) readManifest(handle string, dir int) (*manifest.Manifest, error) {
	f, err := openFile(dir, manifest.Name)
	if err != nil {
		return nil, d.missing(handle, err)
	}
	defer f.Close()
	m, err := manifest.Parse(handle, f)
	switch {
	case errors.Is(err, manifest.ErrEmpty):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	return m, nil
}

// Stream opens the file of a stream.
func (a *Artifact) Stream(name string) (*os.File, error) {
	f, err := openFile(a.dir, manifest.FileOf(name))
	if err != nil {
		return nil, a.of.missing(a.Manifest.ArtifactID, err)
	}
	return f, nil
}

// Close closes the artifact.
func (a *Artifact) Close() { unix.Close(a.dir) }

// OpenStream opens the file of a stream of an artifact whose manifest may be unreadable.
func (d *Dir) OpenStream(handle, name string) (*os.File, error) {
	dir, err := at.Open(d.fd, handle, at.Dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return openFile(dir, manifest.FileOf(name))
}

// missing returns the error for a file of an artifact that cannot be opened: ErrCorrupt, unless the artifact is being
// removed.
func (d *Dir) missing(handle string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(d.fd, handle, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ErrNotFound
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EACCES) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
