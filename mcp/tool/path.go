package tool

import (
	"path"
	"strings"
)

// InRepo returns a path relative to the repository, "" for the repository itself. p may be absolute; root is the repository's
// path, "" if it is not known. argument is the name for errors.
func InRepo(root, argument, p string) (string, error) {
	clean := path.Clean(p)
	if path.IsAbs(p) && root != "" {
		rest, ok := strings.CutPrefix(clean+"/", strings.TrimSuffix(path.Clean(root), "/")+"/")
		if !ok {
			return "", Invalid(argument, "%q is outside the repository, %s: use a path in it, or a relative one", Clip(p), Clean(root))
		}
		clean = path.Clean(rest)
	}
	switch {
	case path.IsAbs(clean):
		return "", Invalid(argument, "%q must be relative to the repository", Clip(p))
	case clean == "..", strings.HasPrefix(clean, "../"):
		return "", Invalid(argument, "%q is outside the repository", Clip(p))
	case clean == ".":
		return "", nil
	}
	return clean, nil
}
