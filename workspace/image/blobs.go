package image

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// An extent locates the content of an archive entry, or holds the target of a link.
type extent struct {
	at, size int64
	link     string
}

// blobs gives access to the files of an image.
type blobs interface {
	// open opens a regular file by its clean name, and returns its size. The caller closes it.
	open(name string) (io.ReadCloser, int64, error)
}

// directoryBlobs are files in a directory. Links are followed only within it.
type directoryBlobs struct{ root *os.Root }

func (d directoryBlobs) open(name string) (io.ReadCloser, int64, error) {
	// O_NONBLOCK: do not block on a pipe.
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// archiveBlobs are files in an archive.
type archiveBlobs struct {
	file  io.ReaderAt
	files map[string]extent
}

func (a archiveBlobs) open(name string) (io.ReadCloser, int64, error) {
	at := name
	// Old versions of Docker stored a layer that an image has twice as a link.
	for range 8 {
		e, ok := a.files[at]
		if !ok {
			return nil, 0, fmt.Errorf("%.200q is not in the archive", name)
		}
		if e.link == "" {
			return io.NopCloser(io.NewSectionReader(a.file, e.at, e.size)), e.size, nil
		}
		at = e.link
	}
	return nil, 0, fmt.Errorf("%.200q is a link that does not lead to a file", name)
}

// document reads a whole file of at most MaxDocument bytes.
func document(b blobs, name string) ([]byte, error) {
	f, size, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > MaxDocument {
		return nil, fmt.Errorf("%s has %d bytes, above the maximum of %d", name, size, MaxDocument)
	}
	var buffer bytes.Buffer
	if _, err := io.Copy(&buffer, io.LimitReader(f, MaxDocument)); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
