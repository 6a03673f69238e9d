package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A Source is a configuration file that a program reads, with the entry files beside it.
type Source struct {
	Path     string
	Optional bool // whether the file may be absent
	Options  LoadOptions
	// As runs the opening of the file with somebody's rights, and returns its error; nil is with this process's. A file that
	// the command line names is opened with the rights of the user who reads the errors, even if this process is root.
	As func(open func() error) error
}

// FrontSources returns the files that a front-end reads, in order: the operator's, the user's, and the one that the command line
// names unless named is "". A front-end of root's reads no user's file: what root starts is governed by root. getenv is os.Getenv.
// as is the As of the file that the command line names.
func FrontSources(getenv func(string) string, named string, as func(open func() error) error) []Source {
	sources := frontSources(getenv, named, os.Getuid() == 0)
	for i := range sources {
		if sources[i].Path == named && named != DefaultPath {
			sources[i].As = as
		}
	}
	return sources
}

func frontSources(getenv func(string) string, named string, root bool) []Source {
	sources := []Source{{Path: DefaultPath, Optional: true, Options: LoadOptions{Trusted: true}}}
	if path := UserPath(getenv); path != "" && !root {
		sources = append(sources, Source{Path: path, Optional: true, Options: LoadOptions{Own: true, Links: true, User: true}})
	}
	for i := range sources {
		if sources[i].Path == named {
			sources[i].Optional = false
			return sources
		}
	}
	if named != "" {
		sources = append(sources, Source{Path: named, Options: LoadOptions{Links: !root}})
	}
	return sources
}

// UserPath returns the path of a user's file: $XDG_CONFIG_HOME/corral/config.yaml, by default in ~/.config, or "" without a home.
// (XDG Base Directory Specification: a path that is not absolute is ignored.)
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

// A Front is a set of files that are open and not yet parsed. Root opens them and drops its privileges before it calls Load.
type Front struct{ files []*openFiles }

// An openFiles is a configuration file that is open, with the entry files beside it, which are read already: up to 2,048 open
// files could be more than a process may have.
type openFiles struct {
	Files
	open  *os.File // nil if there is no such file
	paths []string // of the file and the directories of entry files that exist
}

// OpenFront opens those of sources that exist. An Optional source may have entry files and no file.
func OpenFront(sources ...Source) (*Front, error) {
	f := &Front{}
	for _, s := range sources {
		one, err := s.open()
		if err != nil {
			_ = f.Close()
			if errors.Is(err, os.ErrPermission) && s.Path == DefaultPath {
				err = fmt.Errorf("%w\nhint: it governs front-ends too, which are not root: make it readable for those who use them", err)
			}
			return nil, err
		}
		if len(one.paths) > 0 {
			f.files = append(f.files, one)
		}
	}
	return f, nil
}

// open opens s with the rights that it names.
func (s Source) open() (one *openFiles, err error) {
	if s.As == nil {
		return open(s)
	}
	err = s.As(func() (err error) {
		one, err = open(s)
		return err
	})
	return one, err
}

func open(s Source) (*openFiles, error) {
	dir, err := os.OpenFile(filepath.Dir(s.Path), oPath|syscall.O_DIRECTORY, 0)
	if s.Optional && errors.Is(err, os.ErrNotExist) {
		return &openFiles{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openIn(dir, s)
}

// openIn opens s in its directory dir, wherever that is by now.
func openIn(dir *os.File, s Source) (one *openFiles, err error) {
	one = &openFiles{Files: Files{User: s.Options.User}}
	one.open, err = openFile(dir, s.Path, s.Options)
	switch {
	case err == nil:
		one.paths = append(one.paths, s.Path)
	case !s.Optional || !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	if err := one.openEntries(dir, s); err != nil {
		if one.open != nil {
			one.open.Close()
		}
		return nil, err
	}
	return one, nil
}

// openEntries reads the entry files beside s.
func (l *openFiles) openEntries(dir *os.File, s Source) error {
	for _, list := range []struct {
		name string
		into *[]File
	}{{reposDir, &l.Repos}, {principalsDir, &l.Principals}} {
		d, err := openEntries(dir, s.Path, list.name, s.Options)
		if d == nil {
			if err != nil {
				return err
			}
			continue
		}
		*list.into, err = readEntries(d, s.Options)
		l.paths = append(l.paths, d.Name())
		if d.Close(); err != nil {
			return err
		}
	}
	return nil
}

// read reads the configuration file.
func (l *openFiles) read() (err error) {
	if l.open != nil {
		l.Main, err = read(l.open, MaxSize)
	}
	return err
}

// Files returns the paths of the files, and of the directories of entry files beside them.
func (f *Front) Files() []string {
	var paths []string
	for _, one := range f.files {
		paths = append(paths, one.paths...)
	}
	return paths
}

// Load parses the files, which can be done once. The last file takes precedence: key by key in mappings, and as a whole for
// every other value, so that a list, with its entry files, replaces an earlier file's. What is wrong in the files is a
// strict.Errors. Without any file, Load returns Default.
func (f *Front) Load() (Config, error) {
	var all []Files
	var errs []error
	for _, one := range f.files {
		errs = append(errs, one.read())
		all = append(all, one.Files)
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return parse(all, lookupUser)
}

// Close closes the files.
func (f *Front) Close() error {
	var errs []error
	for _, one := range f.files {
		if one.open != nil {
			errs = append(errs, one.open.Close())
		}
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
