package edit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// FilesName is the first argument of corral-layer for one operation on a file or directory.
const FilesName = "files"

// The operations, with what RunFiles writes to standard output: content as it is, and the other results as JSON objects of the environment
// protocol, whose names these are.
const (
	OpStat   = "getMetadata"     // of what Path leads to; isSymlink is of Path itself
	OpRead   = "readFile"        // the content
	OpWrite  = "writeFile"       // nothing, like those that follow
	OpMkdir  = "createDirectory" //
	OpRemove = "remove"          //
	OpCopy   = "copy"            //
	OpReal   = "canonicalize"    // the path without symbolic links
	OpList   = "readDirectory"   // the names in a directory
	OpWalk   = "walk"            // the paths below a directory
)

// A FileRequest is one operation on a file or directory. Reading follows symbolic links as the kernel does: it sees all that a job sees,
// and nothing else. What changes something stays in the repository, and out of git directories.
type FileRequest struct {
	Op        string
	Path      string // absolute; like all paths here, UTF-8
	To        string // of a copy, absolute
	Data      []byte // to be written; at most MaxFile
	Recursive bool   // of createDirectory, remove and copy
	Force     bool   // what is missing need not be removed
	// ReadOnly, Open and Hidden are paths relative to the repository, "" for all of it. What is below the first is not changed, unless it is
	// below an open path that is longer, and what is below the last is not even read.
	ReadOnly, Open, Hidden []string
	// Patterns are regular expressions for absolute paths that are hidden.
	Patterns []string
	Walk     WalkBounds
}

// WalkBounds bound a walk. Zero is the maximum of the package.
type WalkBounds struct {
	Depth, Directories, Entries int
	Follow                      bool // symbolic links to directories
	Prune                       bool // directories whose name begins with a dot
}

// maxWalk is the maximum number of entries of a directory, a walk or a copy.
const maxWalk = 100_000

// URI returns the URI of an absolute path.
func URI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

// Exit codes of corral-layer for an operation that failed, apart from 1.
const (
	ExitMissing = 3 // no such file or directory
	ExitState   = 4 // the file is of another kind, too large, or exists
)

// A FileError is the failure of an operation.
type FileError struct {
	err  error
	code int
}

func (e *FileError) Error() string { return e.err.Error() }
func (e *FileError) Unwrap() error { return e.err }

// ExitCode is that of corral-layer.
func (e *FileError) ExitCode() int { return e.code }

func state(format string, values ...any) error {
	return &FileError{fmt.Errorf(format, values...), ExitState}
}

// codeOf gives an error of the kernel its exit code.
func codeOf(err error) error {
	for _, e := range []struct {
		is   error
		code int
	}{{unix.ENOENT, ExitMissing}, {unix.ENOTDIR, ExitState}, {unix.EISDIR, ExitState}, {unix.EEXIST, ExitState}, {unix.ENOTEMPTY, ExitState}} {
		if errors.Is(err, e.is) && !errors.As(err, new(*FileError)) {
			return &FileError{err, e.code}
		}
	}
	return err
}

// Encode returns the request as RunFiles reads it.
func (r *FileRequest) Encode() string { return encode(r) }

func readFiles(from io.Reader) (r FileRequest, err error) {
	if err = decode(from, &r); err == nil && len(r.Data) > MaxFile {
		err = fmt.Errorf("the content has %d bytes, the maximum is %d", len(r.Data), MaxFile)
	}
	for _, b := range []struct {
		n    *int
		most int
	}{{&r.Walk.Depth, maxDepth}, {&r.Walk.Directories, maxWalk}, {&r.Walk.Entries, maxWalk}} {
		if *b.n <= 0 || *b.n > b.most {
			*b.n = b.most
		}
	}
	return r, err
}

// RunFiles carries out the request in stdin in the repository that is the working directory, and writes its result to stdout. An error
// with an exit code of its own is a *FileError.
func RunFiles(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		return errors.New("files takes no arguments: the request is read from standard input")
	}
	r, err := readFiles(stdin)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	f := &files{FileRequest: r, root: root, out: stdout}
	for _, p := range r.Patterns {
		expression, err := regexp.Compile(p)
		if err != nil {
			return fmt.Errorf("the request on standard input is not valid: %w", err)
		}
		f.patterns = append(f.patterns, expression)
	}
	do := map[string]func() error{
		OpStat: f.stat, OpRead: f.read, OpWrite: f.write, OpMkdir: f.mkdir, OpRemove: f.remove, OpCopy: f.copy,
		OpReal: f.real, OpList: f.list, OpWalk: f.walk,
	}[r.Op]
	if do == nil || !path.IsAbs(r.Path) || strings.IndexByte(r.Path+r.To, 0) >= 0 {
		return fmt.Errorf("the request on standard input is not valid: %q of %q", r.Op, r.Path)
	}
	return codeOf(do())
}

// files is one call of RunFiles.
type files struct {
	FileRequest
	patterns []*regexp.Regexp
	root     string
	out      io.Writer
}

func (f *files) matches(path string) bool {
	return slices.ContainsFunc(f.patterns, func(p *regexp.Regexp) bool { return p.MatchString(path) })
}

// print writes a result.
func (f *files) print(result any) error {
	e := json.NewEncoder(f.out)
	e.SetEscapeHTML(false)
	return e.Encode(result)
}

// below reports whether a path relative to the repository is in one of a list, or above one with above.
func below(list []string, rel string, above bool) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		return p == "" || rel == p || strings.HasPrefix(rel, p+"/") || above && (rel == "" || strings.HasPrefix(p, rel+"/"))
	})
}

// openAt opens name, relative to a directory or absolute, for reading. Hidden files are refused by where they really are.
func (f *files) openAt(dir int, name string, flags int) (*os.File, error) {
	// Should it be a FIFO, O_NONBLOCK keeps the call from waiting for a writer.
	fd, err := unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file := os.NewFile(uintptr(fd), name)
	if len(f.Hidden)+len(f.patterns) == 0 {
		return file, nil
	}
	real, err := whereIs(fd)
	rel, in := strings.CutPrefix(real+"/", strings.TrimSuffix(f.root, "/")+"/")
	if err == nil && in && below(f.Hidden, strings.TrimSuffix(rel, "/"), false) || f.matches(real) {
		err = fmt.Errorf("%s is hidden by the client's sandbox", name)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (f *files) open(flags int) (*os.File, error) { return f.openAt(unix.AT_FDCWD, f.Path, flags) }

// whereIs returns the path of an open file.
func whereIs(fd int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }

func (f *files) stat() error {
	var link unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, f.Path, &link, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: f.Path, Err: err}
	}
	file, err := f.open(unix.O_PATH)
	if err != nil {
		return err
	}
	defer file.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return err
	}
	ms := func(t unix.StatxTimestamp) int64 { return t.Sec*1000 + int64(t.Nsec)/1e6 }
	created := int64(0) // unknown
	if st.Mask&unix.STATX_BTIME != 0 {
		created = ms(st.Btime)
	}
	kind := uint32(st.Mode) & unix.S_IFMT
	return f.print(map[string]any{
		"isDirectory": kind == unix.S_IFDIR, "isFile": kind == unix.S_IFREG, "isSymlink": link.Mode&unix.S_IFMT == unix.S_IFLNK,
		"size": st.Size, "createdAtMs": created, "modifiedAtMs": ms(st.Mtime),
	})
}

// regular refuses an open file that is not a regular one.
func regular(file *os.File) (fs.FileInfo, error) {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = state("%s is not a regular file", file.Name())
	}
	return info, err
}

func (f *files) read() error {
	file, err := f.open(unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := regular(file)
	if err != nil {
		return err
	}
	if info.Size() > MaxFile {
		return state("%s has %d bytes, and at most %d are read at once: use a command", f.Path, info.Size(), MaxFile)
	}
	content, err := readAll(file)
	if err == nil && len(content) > MaxFile {
		err = state("%s has more than %d bytes: use a command", f.Path, MaxFile)
	}
	if err != nil {
		return err
	}
	_, err = f.out.Write(content)
	return err
}

func (f *files) real() error {
	file, err := f.open(unix.O_PATH)
	if err != nil {
		return err
	}
	defer file.Close()
	real, err := whereIs(int(file.Fd()))
	if err != nil {
		return err
	}
	return f.print(map[string]string{"path": URI(real)})
}

// An entry is one of a directory.
type entry struct {
	Name string `json:"fileName"`
	Dir  bool   `json:"isDirectory"`
	File bool   `json:"isFile"`
	link bool
}

// entries returns the entries of an open directory. A symbolic link has the type of what it leads to.
func entries(dir *os.File) (list []entry, err error) {
	names, err := dir.ReadDir(maxWalk + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(names) > maxWalk:
		return nil, state("%s has more than %d entries: use a command", dir.Name(), maxWalk)
	}
	list = []entry{}
	for _, n := range names {
		e := entry{Name: n.Name(), Dir: n.IsDir(), File: n.Type().IsRegular(), link: n.Type()&fs.ModeSymlink != 0}
		var st unix.Stat_t
		if e.link && unix.Fstatat(int(dir.Fd()), e.Name, &st, 0) == nil {
			kind := st.Mode & unix.S_IFMT
			e.Dir, e.File = kind == unix.S_IFDIR, kind == unix.S_IFREG
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (f *files) list() error {
	dir, err := f.open(unix.O_RDONLY | unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	list, err := entries(dir)
	if err != nil {
		return err
	}
	return f.print(map[string]any{"entries": list})
}

// A walked path is one that a walk came to, or could not read.
type walked struct {
	Path    string `json:"path"`
	Kind    string `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
}

// A walk is what a call of walk has found.
type walk struct {
	Entries []walked `json:"entries"`
	Errors  []walked `json:"errors"`
	Cut     bool     `json:"truncated"`

	seen  map[[2]uint64]bool // directories, by device and inode
	queue []level
}

// A level is a directory that a walk will read.
type level struct {
	name  string
	depth int
}

// walk lists files and directories level by level.
func (f *files) walk() error {
	w := &walk{Entries: []walked{}, Errors: []walked{}, seen: map[[2]uint64]bool{}, queue: []level{{f.Path, 0}}}
	for n := 0; len(w.queue) > 0 && !w.Cut; n++ {
		at := w.queue[0]
		w.queue = w.queue[1:]
		if n >= f.Walk.Directories {
			w.Cut = true
			break
		}
		list, err := f.readDirectory(at.name, w.seen)
		if err != nil && n == 0 {
			return err
		}
		if err != nil {
			w.Errors = append(w.Errors, walked{Path: URI(at.name), Message: err.Error()})
		}
		w.add(&f.Walk, at, list)
	}
	return f.print(w)
}

// add adds the entries of a directory.
func (w *walk) add(most *WalkBounds, at level, list []entry) {
	for _, e := range list {
		enter := e.Dir && (!e.link || most.Follow)
		if !enter && !e.File || enter && most.Prune && strings.HasPrefix(e.Name, ".") {
			continue
		}
		if len(w.Entries) >= most.Entries {
			w.Cut = true
			return
		}
		name, kind := path.Join(at.name, e.Name), "file"
		if enter {
			kind = "directory"
		}
		w.Entries = append(w.Entries, walked{Path: URI(name), Kind: kind})
		if enter && at.depth+1 < most.Depth {
			w.queue = append(w.queue, level{name, at.depth + 1})
		}
	}
}

// readDirectory returns the entries of a directory, or none if it was read before under another name.
func (f *files) readDirectory(name string, seen map[[2]uint64]bool) ([]entry, error) {
	dir, err := f.openAt(unix.AT_FDCWD, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	id := [2]uint64{st.Dev, st.Ino}
	if seen[id] {
		return nil, nil
	}
	seen[id] = true
	return entries(dir)
}
