package scan

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// acl returns an access control list in the kernel's format (posix_acl_xattr.h), which grants perm to user 65534.
func acl(perm, mask uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, 1<<32 - 1}, {2, perm, 65534}, {4, 5, 1<<32 - 1}, {0x10, mask, 1<<32 - 1}, {0x20, 5, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// TestAccessLists: a directory that gets an access control list for another user is reported, though its permissions are
// unchanged; so is one whose list changes.
func TestAccessLists(t *testing.T) {
	for name, tc := range map[string]struct{ path, attr string }{
		"default of hooks":          {".git/hooks", "system.posix_acl_default"},
		"access of hooks":           {".git/hooks", "system.posix_acl_access"},
		"default of the root":       {".", "system.posix_acl_default"},
		"access of one above":       {"a", "system.posix_acl_access"},
		"default of one of agents'": {"a/.claude/x", "system.posix_acl_default"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, "chmod 755 .; mkdir -p .git/hooks a/.claude/x; chmod 755 .git/hooks a a/.claude/x; echo > .git/hooks/pre-push")
			path := filepath.Join(dir, tc.path)
			if err := unix.Setxattr(path, tc.attr, acl(1, 5), 0); err != nil {
				t.Skipf("no access control lists here: %v", err)
			}
			s := scanner(t, dir, Bounds{})
			baseline(t, s)
			for _, list := range [][]byte{acl(5, 5), nil} {
				since := settle()
				var err error
				if list != nil {
					err = unix.Setxattr(path, tc.attr, list, 0)
				} else {
					err = unix.Removexattr(path, tc.attr)
				}
				if err != nil {
					t.Fatal(err)
				}
				if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{tc.path}) {
					t.Errorf("%q", rep.Paths)
				}
				if rep := changed(t, s, since); len(rep.Paths) > 0 {
					t.Errorf("reported again: %q", rep.Paths)
				}
			}
		})
	}
}
