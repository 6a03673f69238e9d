package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/workspace/image/unpack"
)

// A walk writes a directory to an archive. Each directory is opened relative to its parent's descriptor, so that a
// concurrent rename cannot lead out of the tree.
type walk struct {
	w     *writer
	mount uint64            // the ID of the mount being read
	files map[fileID]string // files with several names, with the first one
	text  int               // bytes of these names
}

type fileID struct{ device, inode uint64 }

func writeDirectory(out io.Writer, root *os.Root, limits Limits) (Summary, error) {
	v := &walk{w: newWriter(out, limits), files: map[fileID]string{}}
	var err error
	if v.mount, err = mountOf(root); err != nil {
		return Summary{}, err
	}
	if err := v.directory(root, ""); err != nil {
		return v.w.sum, err
	}
	return v.w.end()
}

// directory writes the contents of dir in sorted order, so that the same tree gives the same archive.
func (v *walk) directory(dir *os.Root, name string) error {
	entries, err := v.list(dir, name)
	if err != nil {
		return err
	}
	for _, base := range entries {
		info, err := dir.Lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed after it was listed
		}
		if err == nil {
			err = v.entry(dir, base, path.Join(name, base), info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the sorted names in dir.
func (v *walk) list(dir *os.Root, name string) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", name, err)
	}
	defer f.Close()
	var all []string
	for {
		names, err := f.Readdirnames(1024)
		if all = append(all, names...); int64(len(all)) > v.w.limits.Entries-v.w.sum.Entries {
			return nil, tooMany(v.w.limits.Entries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%.200q: %w", name, err)
		}
	}
}

func (v *walk) entry(dir *os.Root, base, name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%.200q: Lstat returned no Stat_t", name)
	}
	if _, _, err := unpack.Split(name); err != nil {
		return err
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return v.subdirectory(dir, base, name, stat)
	case syscall.S_IFREG:
		return v.file(dir, base, name, stat)
	case syscall.S_IFLNK:
		target, err := dir.Readlink(base)
		if err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		return v.w.symlink(name, target)
	}
	v.w.sum.Devices++
	return nil
}

func (v *walk) subdirectory(dir *os.Root, base, name string, stat *syscall.Stat_t) error {
	if err := v.w.directory(name, stat.Mode&0o7777, stat.Mtim.Sec); err != nil {
		return err
	}
	sub, err := dir.OpenRoot(base)
	if errors.Is(err, fs.ErrPermission) {
		v.w.sum.Unreadable.add(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	defer sub.Close() //nolint:errcheck // only read
	now, err := sub.Stat(".")
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	if !same(now, stat) {
		return changed(name)
	}
	mount, err := mountOf(sub)
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	if mount != v.mount {
		v.w.sum.Mounts.add(name)
		return nil
	}
	return v.directory(sub, name)
}

func (v *walk) file(dir *os.Root, base, name string, stat *syscall.Stat_t) error {
	id := fileID{stat.Dev, stat.Ino}
	if first, ok := v.files[id]; ok {
		return v.w.link(name, first)
	}
	// O_NONBLOCK: do not block if the file has been replaced by a pipe.
	f, err := dir.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrPermission) {
		v.w.sum.Unreadable.add(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !same(info, stat) {
		return changed(name)
	}
	if stat.Nlink > 1 {
		if v.text += len(name); v.text > maxText {
			return errText
		}
		v.files[id] = name
	}
	err = v.w.file(name, stat.Mode&0o7777, stat.Mtim.Sec, info.Size(), f)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return changed(name)
	}
	return err
}

// same reports whether the opened file is the one that stat describes.
func same(opened fs.FileInfo, stat *syscall.Stat_t) bool {
	now, ok := opened.Sys().(*syscall.Stat_t)
	return ok && now.Dev == stat.Dev && now.Ino == stat.Ino
}

// mountOf returns the mount ID of dir as in statx(2). A device number does not suffice: btrfs has one for each
// subvolume, and overlayfs different ones for files and for directories.
func mountOf(dir *os.Root) (uint64, error) {
	f, err := dir.Open(".")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("statx: %w", err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, errors.New("statx: this kernel does not report mount IDs (hint: use Linux 5.8 or newer)")
	}
	return st.Mnt_id, nil
}
