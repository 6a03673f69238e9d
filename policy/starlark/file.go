package starlark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A File is a file of rules that is read for each decision. If the new content does not compile or cannot be
// trusted, everything is denied until the file is fixed: the previous rules are not used.
type File struct {
	path  string
	never []string

	mu      sync.Mutex
	rules   *Rules // guarded by mu: compiled content, nil if err is set
	err     error  // guarded by mu
	content []byte // guarded by mu: source of rules, nil if it cannot be read
}

// Open returns a File for an absolute path. It does not read the file; see Check. A file inside one of the directories
// never is refused, since jobs could write to it.
func Open(path string, never ...string) *File { return &File{path: path, never: never} }

// Check reads the file if it has changed. Its error is one line that describes the problem, without the file's directory.
func (f *File) Check() error {
	_, err := f.current()
	return err
}

// Decide evaluates the rules that are in the file now.
func (f *File) Decide(ctx context.Context, q Query) Verdict {
	rules, err := f.current()
	if err != nil {
		return failed(err.Error())
	}
	return rules.Decide(ctx, q)
}

// current returns the rules that are in the file now. It reads the file, and compiles it if its content has changed.
func (f *File) current() (*Rules, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := f.trusted()
	switch {
	case err != nil:
		f.rules, f.err, f.content = nil, f.named(err), nil
	case f.content == nil || !bytes.Equal(content, f.content):
		f.rules, f.err = Parse(filepath.Base(f.path), content)
		f.content = content
	}
	return f.rules, f.err
}

// named prefixes an error with the file's name, without the directory: denied users see it.
func (f *File) named(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", filepath.Base(f.path), err)
}

// trusted returns the content of the file if only its owner could have written it.
func (f *File) trusted() ([]byte, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(f.path))
	if err != nil {
		return nil, err
	}
	for _, never := range f.never {
		if real, err := filepath.EvalSymlinks(never); err == nil {
			never = real
		}
		if never = filepath.Clean(never); dir == never || never == "/" || strings.HasPrefix(dir, never+"/") {
			return nil, errors.New("it is in a repository, where jobs could write to it")
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if err := ownAlone("its directory", info); err != nil {
		return nil, err
	}
	// O_NONBLOCK: opening a FIFO would wait for a writer.
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, errors.New("it is a symbolic link")
	case err != nil:
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if err := ownAlone("it", info); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, MaxSource+1)) // Parse refuses a longer one
}

// ownAlone refuses a file that does not belong to root or to this process's user, or that others may write. If there is
// an access list, its mask is in the group's bits (acl(5)), so the check covers it.
func ownAlone(what string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%s has an unknown owner", what)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, which is neither root nor the user of this process", what, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is writable by others (mode %04o)", what, info.Mode().Perm())
	}
	return nil
}
