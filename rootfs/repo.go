package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Place is a directory that is refused as a repository or a toolchain.
type Place struct {
	Path   string
	Inside bool   // what lies in it is refused too, unless a longer Place says otherwise
	Reason string // a clause that follows "because"
}

// Places is the table behind [CheckRepoPath]; the longest row that holds a
// path decides. The homes of users and the state directory are not known
// here: callers pass them.
var Places = []Place{
	{"/", false, "it is the whole host"},
	{"/bin", true, "it holds the system's programs"},
	{"/boot", true, "it holds the kernel"},
	{"/dev", true, "it holds devices"},
	{"/efi", true, "it holds the boot loader"},
	{"/etc", true, "it holds the system's configuration and secrets"},
	{"/home", false, "it holds the homes of users"},
	{"/lib", true, "it holds the system's libraries"},
	{"/lib32", true, "it holds the system's libraries"},
	{"/lib64", true, "it holds the system's libraries"},
	{"/libx32", true, "it holds the system's libraries"},
	{"/lost+found", true, "it belongs to the file system"},
	{"/media", false, "it holds the mount points of other disks"},
	{"/mnt", false, "it holds the mount points of other disks"},
	{"/opt", false, "it holds installed software"},
	{"/proc", true, "it is the kernel's view of processes"},
	{"/root", false, "it is the home directory of root"},
	{"/run", true, "it holds sockets and state of running services"},
	{"/run/media", false, "it holds the mount points of other disks"},
	{"/sbin", true, "it holds the system's programs"},
	{"/snap", true, "it holds installed software"},
	{"/srv", false, "it holds the data of services"},
	{"/sys", true, "it is the kernel's view of hardware"},
	{"/tmp", false, "it is shared by all users"},
	{"/usr", true, "it holds the system's programs"},
	{"/usr/local/src", false, "it holds the sources of installed software"},
	{"/usr/src", false, "it holds the sources of installed software"},
	{"/var", false, "it holds the state of the system"},
	{"/var/backups", true, "it holds copies of the system's secrets"},
	{"/var/cache", false, "it holds the state of services"},
	{MaskDir, true, "it covers what jobs must not see"},
	{LayerDir, true, "it is where jobs find a session's layer"},
	{"/var/lib", false, "it holds the state of services"},
	{"/var/lib/containerd", true, "it holds the containers of the host"},
	{"/var/lib/docker", true, "it holds the containers of the host"},
	{"/var/lib/dpkg", true, "it holds the state of the package manager"},
	{"/var/lib/rpm", true, "it holds the state of the package manager"},
	{"/var/lib/systemd", true, "it holds the state of the system"},
	{"/var/lock", true, "it is a link into /run"},
	{"/var/log", true, "it holds the logs of the host"},
	{lowerDir, true, "it is where overlays are made"},
	{"/var/mail", true, "it holds the mail of users"},
	{rootDir, true, "it is where a session's own root is mounted"},
	{"/var/run", true, "it is a link to /run"},
	{"/var/spool", true, "it holds jobs that cron and others run as users of the host"},
	{"/var/tmp", false, "it is shared by all users"},
}

// CheckRepoPath reports why a repository may not be mounted at p, or nil. The
// test is on the text alone: p must have its links resolved already, and the
// caller pins the directory. Refused are the rows of [Places], whatever is a
// directory directly below /home (not every home is in /etc/passwd), and for
// each of extra (state directories, homes of users) that directory, all that
// contain it and, with Inside, all it contains. Extra paths are absolute and
// clean; "/" among them, which is the home of some accounts, adds nothing.
func CheckRepoPath(p string, extra ...Place) error {
	if why := badPath(p); why != "" {
		return fmt.Errorf("%w: repository %q: %s", ErrPath, p, why)
	}
	if why := refused(p, extra); why != "" {
		return fmt.Errorf("%s is %w, because %s (hint: name a project's own directory)", p, ErrRepo, why)
	}
	return nil
}

// CheckHidden reports why p is no repository if it lies in a directory of a home
// whose name begins with a dot, or is one, as ~/.ssh and ~/.config/x; or nil.
// Homes are those given and whatever is a directory directly below /home. They
// are absolute and clean; "/" among them adds nothing.
func CheckHidden(p string, homes []string) error {
	if rest, ok := strings.CutPrefix(p, "/home/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		homes = append(slices.Clip(homes), "/home/"+name)
	}
	for _, home := range homes {
		if rest, ok := strings.CutPrefix(p, home+"/."); ok && home != "/" {
			name, _, _ := strings.Cut(rest, "/")
			return fmt.Errorf("%s is %w, because hidden directories of a home, as %s/.%s, hold keys, and settings and state of programs (hint: name a project's own directory)",
				p, ErrRepo, home, name)
		}
	}
	return nil
}

// refused says why p is a place for neither repository nor toolchain, "" if
// it may be one.
func refused(p string, extra []Place) string {
	if path.Dir(p) == "/home" {
		return "it is the home directory of a user"
	}
	var row Place
	for _, x := range Places {
		if below(p, x.Path) && len(x.Path) > len(row.Path) {
			row = x
		}
	}
	switch {
	case p == row.Path:
		return row.Reason
	case row.Inside:
		return fmt.Sprintf("it lies in %s: %s", row.Path, row.Reason)
	}
	for _, x := range extra {
		switch {
		case x.Path == "/":
		case p == x.Path, x.Inside && below(p, x.Path):
			return x.Reason
		case below(x.Path, p):
			return fmt.Sprintf("it contains %s, and %s", x.Path, x.Reason)
		}
	}
	return ""
}

// checkOverlap refuses a toolchain that contains the repository or lies in
// it: one of the two mounts would hide the other, or make it writable.
func checkOverlap(toolchain, repo string) error {
	if repo == "" || !below(toolchain, repo) && !below(repo, toolchain) {
		return nil
	}
	return fmt.Errorf("%s is %w: it overlaps the repository %s (hint: what lies in the repository needs no toolchain entry)",
		toolchain, ErrToolchain, repo)
}

// checkToolchain refuses what can be told from the paths, but for the rows of
// Places: /usr/lib/go is none of a repository's business, and a toolchain.
func checkToolchain(p, repo string) error {
	if why := badPath(p); why != "" {
		return fmt.Errorf("%w: toolchain %q: %s", ErrPath, p, why)
	}
	return checkOverlap(p, repo)
}
