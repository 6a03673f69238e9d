package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Source is a file that a front-end reads.
type Source struct {
	Path     string
	Optional bool // that it is not there is no error
	Options  LoadOptions
}

// FrontSources returns the files that a front-end reads, in order: the operator's, the user's, and the one that the
// command line names, if it is not "". Who is root reads no user's: what root starts is governed by root. getenv is
// os.Getenv.
func FrontSources(getenv func(string) string, named string) []Source {
	return frontSources(getenv, named, os.Geteuid() == 0)
}

func frontSources(getenv func(string) string, named string, root bool) []Source {
	sources := []Source{{DefaultPath, true, LoadOptions{Trusted: true}}}
	if path := UserPath(getenv); path != "" && !root {
		sources = append(sources, Source{path, true, LoadOptions{Own: true, Links: true, User: true}})
	}
	for i := range sources {
		if sources[i].Path == named {
			sources[i].Optional = false
			return sources
		}
	}
	if named != "" {
		sources = append(sources, Source{named, false, LoadOptions{Links: !root}})
	}
	return sources
}

// UserPath is where a user's file lies: $XDG_CONFIG_HOME/corral/config.yaml, by default in ~/.config. It is "" without a
// home. (XDG Base Directory Specification: a path that is not absolute is ignored.)
func UserPath(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "corral", "config.yaml")
}

// A Front is the files of a front-end that were opened and not yet read: root opens them and gives itself up in between.
type Front struct{ files []*File }

// OpenFront opens those of sources that exist.
func OpenFront(sources ...Source) (*Front, error) {
	f := &Front{}
	for _, s := range sources {
		file, err := Open(s.Path, s.Options)
		switch {
		case s.Optional && errors.Is(err, os.ErrNotExist):
		case err != nil:
			_ = f.Close()
			if errors.Is(err, os.ErrPermission) && s.Path == DefaultPath {
				err = fmt.Errorf("%w\nhint: it governs front-ends too, which are not root: make it readable for those who use them", err)
			}
			return nil, err
		default:
			f.files = append(f.files, file)
		}
	}
	return f, nil
}

// Files returns the paths of the files that there are.
func (f *Front) Files() []string {
	var paths []string
	for _, one := range f.files {
		paths = append(paths, one.file.Name())
	}
	return paths
}

// Load reads the files, which can be done once. Of what several say, the last holds: key by key in mappings, and as a
// whole where it is no mapping, so that a list holds instead of the earlier file's. What is wrong is an Errors, each of
// which has its file's name. Without any file it returns Default.
func (f *Front) Load() (Config, error) {
	var texts []source
	var errs []error
	for _, one := range f.files {
		t, err := one.text()
		texts, errs = append(texts, t), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return parse(texts, lookupUser)
}

// Close closes the files.
func (f *Front) Close() error {
	var errs []error
	for _, one := range f.files {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// LoadFront opens and reads those of sources that exist: see FrontSources and Front.Load.
func LoadFront(sources ...Source) (Config, error) {
	f, err := OpenFront(sources...)
	if err != nil {
		return Config{}, err
	}
	defer func() { _ = f.Close() }()
	return f.Load()
}
