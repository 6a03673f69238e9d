package artifact

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// An Artifact is a stored artifact that is open for reading. The caller must close it.
type openArtifact struct {
	Manifest *Manifest

	of  *diskDir
	dir int
}

// Open opens an artifact. It does not check who may read it, or whether it has expired. The error is ErrNotFound,
// ErrCorrupt, or one of the file system.
func (d *diskDir) Open(handle string) (*openArtifact, error) {
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
	return &openArtifact{Manifest: m, of: d, dir: dir}, nil
}

func (d *diskDir) readManifest(handle string, dir int) (*Manifest, error) {
	f, err := openFile(dir, manifestName)
	if err != nil {
		return nil, d.missing(handle, err)
	}
	defer f.Close()
	m, err := parseManifest(handle, f)
	switch {
	case errors.Is(err, errNoManifest):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	return m, nil
}

// Stream opens the file of a stream.
func (a *openArtifact) Stream(name string) (*os.File, error) {
	f, err := openFile(a.dir, streamFile(name))
	if err != nil {
		return nil, a.of.missing(a.Manifest.ArtifactID, err)
	}
	return f, nil
}

// Close closes the artifact.
func (a *openArtifact) Close() { unix.Close(a.dir) }

// OpenStream opens the file of a stream of an artifact whose manifest may be unreadable.
func (d *diskDir) OpenStream(handle, name string) (*os.File, error) {
	dir, err := at.Open(d.fd, handle, at.Dir)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return openFile(dir, streamFile(name))
}

// missing returns the error for a file of an artifact that cannot be opened: ErrCorrupt, unless the artifact is being
// removed.
func (d *diskDir) missing(handle string, err error) error {
	var st unix.Stat_t
	if unix.Fstatat(d.fd, handle, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ErrNotFound
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EACCES) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
