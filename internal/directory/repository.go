package directory

import (
	"os"
	"path/filepath"
)

// Repository returns the directory with .git that dir is, or is in, by the names in the path; "" if there is none, or dir is relative.
// Whose it is, and whether git takes it for a repository, is not looked at.
func Repository(dir string) string {
	for ; filepath.IsAbs(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == "/" {
			break
		}
	}
	return ""
}
