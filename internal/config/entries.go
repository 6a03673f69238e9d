package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"corral/internal/text"
)

// The directories of entry files, beside a configuration file: one entry of its repos or principals per file.
const (
	reposDir      = "repos.d"
	principalsDir = "principals.d"
)

// Bounds of a directory of entry files, and of one file in it.
const (
	maxEntries   = 1024 // names, those that are ignored included
	maxEntrySize = 64 << 10
	maxEntryData = 4 << 20 // bytes of all files together
)

// MaxFiles is the maximum number of bytes of a configuration file and all entry files beside it.
const MaxFiles = MaxSize + 2*maxEntryData

// isEntry returns whether a name in such a directory is that of an entry. Other names are ignored: backups of editors, and files
// that are not complete yet.
func isEntry(name string) bool {
	return strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, ".")
}

// openEntries opens the directory of entry files called name beside the file at path, whose directory is dir. It is nil if it does
// not exist. It is never reached through a symbolic link.
func openEntries(dir *os.File, path, name string, o LoadOptions) (*os.File, error) {
	d, err := openAt(dir, filepath.Join(filepath.Dir(path), name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ENOTDIR): // open(2): a symbolic link, with O_DIRECTORY and O_NOFOLLOW
		return nil, fmt.Errorf("%s is not a directory", filepath.Join(filepath.Dir(path), name))
	case err != nil:
		return nil, err
	}
	if err := checkOwner(d, d.Name(), o.forEntries()); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// forEntries returns how entry files are checked: whoever names a file vouches for it, but not for the files beside it.
func (o LoadOptions) forEntries() LoadOptions {
	o.Links, o.Own = false, true
	return o
}

// readEntries returns the entry files in an open directory, in lexical order. A nil directory has none.
func readEntries(d *os.File, o LoadOptions) ([]File, error) {
	if d == nil {
		return nil, nil
	}
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxEntries {
		return nil, fmt.Errorf("%s has more than %d files", d.Name(), maxEntries)
	}
	slices.Sort(names)
	var all []File
	size := 0
	for _, name := range names {
		if !isEntry(name) {
			continue
		}
		one, err := readEntry(d, name, o.forEntries())
		if err != nil {
			return nil, err
		}
		if size += len(one.Content); size > maxEntryData {
			return nil, fmt.Errorf("the files in %s have more than %d bytes", d.Name(), maxEntryData)
		}
		all = append(all, *one)
	}
	return all, nil
}

func readEntry(d *os.File, name string, o LoadOptions) (*File, error) {
	f, err := openAt(d, filepath.Join(d.Name(), name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW)
	if err != nil {
		return nil, escaped(err)
	}
	defer f.Close()
	if err := checkFile(f, maxEntrySize, o); err != nil {
		return nil, escaped(err)
	}
	return read(f, maxEntrySize)
}

// escaped escapes the name of a file in an error: whoever may write to the directory chose it.
func escaped(err error) error {
	message := err.Error()
	if safe := text.Lines(message); safe != message {
		return errors.New(safe)
	}
	return err
}
