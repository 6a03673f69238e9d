// Package unpack fills a directory from an archive. It is the part of `corral rootfs import` that runs in a jail, as the
// unprivileged user of the session whose layer is filled: whoever wrote the archive may be wrong or hostile, and all it
// could reach is that layer.
//
// The archive is a tar stream of a strict form, which package image writes and Unpack insists on:
//
//   - An entry is a directory, a regular file, a symbolic link, or a hard link to a regular file. There are no devices
//     and no sparse files; owners, extended attributes and set-id bits are not looked at.
//   - Names are relative and clean: no leading slash, no empty, "." or ".." component, within the bounds below. The name
//     of a directory may end in one slash.
//   - The parent of an entry is a directory of the archive, before it; the target of a hard link is a regular file of the
//     archive, before it. No name is there twice.
//   - The last entry is a global header with the number of the others, so that an archive that was cut is known.
//
// Nothing is ever looked up through a symbolic link: a parent is a directory that was made here, in a directory that was
// empty.
package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of an archive. What is beyond is refused.
const (
	MaxPath    = 4095       // bytes of a name, and of a link's target: PATH_MAX with its NUL, limits.h(0p)
	MaxName    = 255        // bytes of a component: NAME_MAX
	MaxDepth   = 256        // components of a name
	MaxEntries = 10_000_000 // of one archive
	maxNames   = 256 << 20  // bytes of the names of directories, which are kept until their modes are set
)

// The permission bits that are kept, without the set-id bits.
const (
	FileMode      = 0o777
	DirectoryMode = 0o1777
)

// endRecord is the record of the last entry: how many entries are before it.
const endRecord = "corral.entries"

// End returns the last entry of an archive with so many others.
func End(entries int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeXGlobalHeader, Name: "end",
		PAXRecords: map[string]string{endRecord: strconv.FormatInt(entries, 10)},
	}
}

// Split returns the directory and the base of a name that is as the form wants it. The directory of a name without a
// slash is "".
func Split(name string) (dir, base string, err error) {
	if len(name) > MaxPath {
		return "", "", fmt.Errorf("%.80q…: a name of %d bytes, more than %d", name, len(name), MaxPath)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		depth++
		switch {
		case part == "" || part == "." || part == ".." || strings.Contains(part, "\x00"):
			return "", "", fmt.Errorf("%q: a name that is absolute, has an empty component, \".\", \"..\" or a NUL", name)
		case len(part) > MaxName:
			return "", "", fmt.Errorf("%.80q…: a component of %d bytes, more than %d", name, len(part), MaxName)
		}
	}
	if depth > MaxDepth {
		return "", "", fmt.Errorf("%.80q…: %d components, more than %d", name, depth, MaxDepth)
	}
	cut := strings.LastIndexByte(name, '/')
	return name[:max(cut, 0)], name[cut+1:], nil
}

// CheckTarget returns an error unless a symbolic link may lead to target. It may lead anywhere: whoever follows it is in a
// jail.
func CheckTarget(target string) error {
	if target == "" || len(target) > MaxPath || strings.Contains(target, "\x00") {
		return fmt.Errorf("a target of %d bytes: must be 1 to %d, none of them NUL", len(target), MaxPath)
	}
	return nil
}

// Totals is what was unpacked.
type Totals struct {
	Entries     int64 // of all kinds
	Files       int64
	Directories int64
	Symlinks    int64
	Links       int64 // further names of files
	Bytes       int64 // of the contents of files, with what is sparse in them
}

const totalsForm = "unpacked entries=%d files=%d directories=%d symlinks=%d links=%d bytes=%d"

// String returns the line that the program ends with, without its newline.
func (t Totals) String() string {
	return fmt.Sprintf(totalsForm, t.Entries, t.Files, t.Directories, t.Symlinks, t.Links, t.Bytes)
}

// ParseTotals reads what String writes and nothing else.
func ParseTotals(line string) (Totals, error) {
	var t Totals
	_, err := fmt.Sscanf(line, totalsForm, &t.Entries, &t.Files, &t.Directories, &t.Symlinks, &t.Links, &t.Bytes)
	if err != nil || t.String() != line {
		return Totals{}, fmt.Errorf("%.200q is not what the unpacker says at its end", line)
	}
	if min(t.Entries, t.Files, t.Directories, t.Symlinks, t.Links, t.Bytes) < 0 {
		return Totals{}, errors.New("the unpacker counted less than nothing")
	}
	return t, nil
}
