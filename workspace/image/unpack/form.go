// Package unpack fills a directory from an archive. It is the part of `corral rootfs import` that runs in a jail, as
// the unprivileged user of the session whose layer is filled: the archive may be malformed or hostile, and it can
// affect only that layer.
//
// The archive is a tar stream of a strict form, which package image writes and Unpack requires:
//
//   - An entry is a directory, a regular file, a symbolic link, or a hard link to a regular file. Devices and sparse
//     files are refused; owners, extended attributes and set-id bits are ignored.
//   - Names are relative and clean: no leading slash, no empty, "." or ".." component, within the bounds below. The
//     name of a directory may end in one slash.
//   - The parent of an entry is an earlier directory of the archive; the target of a hard link is an earlier regular
//     file. Names are unique.
//   - The last entry is a global header with the number of the others, so that a truncated archive is detected.
//
// No lookup goes through a symbolic link: a parent is a directory created by Unpack, in a directory that was empty.
package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of an archive. An archive beyond them is refused.
const (
	MaxPath    = 4095       // bytes of a name, and of a link's target: PATH_MAX without the NUL, limits.h(0p)
	MaxName    = 255        // bytes of a component: NAME_MAX
	MaxDepth   = 256        // components of a name
	MaxEntries = 10_000_000 // of one archive
	maxNames   = 256 << 20  // bytes of all directory names, which are kept until the modes are set
)

// The permission bits that are kept, without the set-id bits.
const (
	FileMode      = 0o777
	DirectoryMode = 0o1777
)

// endRecord is the PAX record of the last entry: the number of entries before it.
const endRecord = "corral.entries"

// End returns the last entry of an archive with the given number of other entries.
func End(entries int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeXGlobalHeader, Name: "end",
		PAXRecords: map[string]string{endRecord: strconv.FormatInt(entries, 10)},
	}
}

// Split checks a name and returns its directory and base. The directory of a name without a slash is "".
func Split(name string) (dir, base string, err error) {
	if len(name) > MaxPath {
		return "", "", fmt.Errorf("%.80q…: a name of %d bytes, above the maximum of %d", name, len(name), MaxPath)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		depth++
		switch {
		case part == "" || part == "." || part == ".." || strings.Contains(part, "\x00"):
			return "", "", fmt.Errorf("%q: the name must be relative, without empty, \".\" or \"..\" components and NUL bytes", name)
		case len(part) > MaxName:
			return "", "", fmt.Errorf("%.80q…: a component of %d bytes, above the maximum of %d", name, len(part), MaxName)
		}
	}
	if depth > MaxDepth {
		return "", "", fmt.Errorf("%.80q…: %d components, above the maximum of %d", name, depth, MaxDepth)
	}
	cut := strings.LastIndexByte(name, '/')
	return name[:max(cut, 0)], name[cut+1:], nil
}

// CheckTarget returns an error unless target is a valid target of a symbolic link. It may point anywhere: only
// processes in a jail follow it.
func CheckTarget(target string) error {
	if target == "" || len(target) > MaxPath || strings.Contains(target, "\x00") {
		return fmt.Errorf("a link target of %d bytes: must be 1 to %d bytes without NUL", len(target), MaxPath)
	}
	return nil
}

// Totals counts the unpacked entries.
type Totals struct {
	Entries     int64 // of all kinds
	Files       int64
	Directories int64
	Symlinks    int64
	Links       int64 // additional names of files
	Bytes       int64 // of the contents of files, including holes
}

const totalsForm = "unpacked entries=%d files=%d directories=%d symlinks=%d links=%d bytes=%d"

// String returns the line that Run prints at the end, without its newline.
func (t Totals) String() string {
	return fmt.Sprintf(totalsForm, t.Entries, t.Files, t.Directories, t.Symlinks, t.Links, t.Bytes)
}

// ParseTotals parses a line written by String, and accepts nothing else.
func ParseTotals(line string) (Totals, error) {
	var t Totals
	_, err := fmt.Sscanf(line, totalsForm, &t.Entries, &t.Files, &t.Directories, &t.Symlinks, &t.Links, &t.Bytes)
	if err != nil || t.String() != line {
		return Totals{}, fmt.Errorf("%.200q is not the result line of the unpacker", line)
	}
	if min(t.Entries, t.Files, t.Directories, t.Symlinks, t.Links, t.Bytes) < 0 {
		return Totals{}, errors.New("the unpacker reported a negative count")
	}
	return t, nil
}
