package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Place is a directory that is refused as a repository or a toolchain.
type Place struct {
	Path   string
	Inside bool   // its contents are refused too, except below a longer Place without Inside
	Reason string // a clause that follows "because"
}

// Places is the table of [CheckRepoPath]; the longest row that contains a path decides. It does not contain the homes
// of users and the state directory, which callers pass.
var Places = []Place{
	{"/", false, "it is the whole host"},
	{"/bin", true, "it contains the system's programs"},
	{"/boot", true, "it contains the kernel"},
	{"/dev", true, "it contains devices"},
	{"/efi", true, "it contains the boot loader"},
	{"/etc", true, "it contains the system's configuration and secrets"},
	{"/home", false, "it contains the homes of users"},
	{"/lib", true, "it contains the system's libraries"},
	{"/lib32", true, "it contains the system's libraries"},
	{"/lib64", true, "it contains the system's libraries"},
	{"/libx32", true, "it contains the system's libraries"},
	{"/lost+found", true, "it belongs to the file system"},
	{"/media", false, "it contains the mount points of other disks"},
	{"/mnt", false, "it contains the mount points of other disks"},
	{"/opt", false, "it contains installed software"},
	{"/proc", true, "it is the kernel's view of processes"},
	{"/root", false, "it is the home directory of root"},
	{"/run", true, "it contains sockets and state of running services"},
	{"/run/media", false, "it contains the mount points of other disks"},
	{"/sbin", true, "it contains the system's programs"},
	{"/snap", true, "it contains installed software"},
	{"/srv", false, "it contains the data of services"},
	{"/sys", true, "it is the kernel's view of hardware"},
	{"/tmp", false, "it is shared by all users"},
	{"/usr", true, "it contains the system's programs"},
	{"/usr/local/src", false, "it contains the sources of installed software"},
	{"/usr/src", false, "it contains the sources of installed software"},
	{"/var", false, "it contains the state of the system"},
	{"/var/backups", true, "it contains copies of the system's secrets"},
	{"/var/cache", false, "it contains the state of services"},
	{DoorDir, true, "it has settings of jobs that may reach hosts"},
	{MaskDir, true, "it masks paths that jobs must not see"},
	{LayerDir, true, "a session's layer is mounted there"},
	{"/var/lib", false, "it contains the state of services"},
	{"/var/lib/containerd", true, "it contains the containers of the host"},
	{"/var/lib/docker", true, "it contains the containers of the host"},
	{"/var/lib/dpkg", true, "it contains the state of the package manager"},
	{"/var/lib/rpm", true, "it contains the state of the package manager"},
	{"/var/lib/systemd", true, "it contains the state of the system"},
	{"/var/lock", true, "it is a link into /run"},
	{"/var/log", true, "it contains the logs of the host"},
	{lowerDir, true, "overlays are created there"},
	{"/var/mail", true, "it contains the mail of users"},
	{rootDir, true, "a session's own root is mounted there"},
	{"/var/run", true, "it is a link to /run"},
	{"/var/spool", true, "it contains jobs that cron and others run as users of the host"},
	{"/var/tmp", false, "it is shared by all users"},
}

// CheckRepoPath returns an error if a repository may not be mounted at p. It checks only the text: the links of p
// must be resolved already, and the caller pins the directory. It refuses the rows of [Places]; any directory
// directly below /home (not every home is in /etc/passwd); and for each of extra (state directories, homes of users)
// that directory, its parents and, with Inside, its contents. Extra paths are absolute and clean; "/", the home of
// some accounts, is ignored.
func CheckRepoPath(p string, extra ...Place) error {
	if why := badPath(p); why != "" {
		return fmt.Errorf("%w: repository %q: %s", ErrPath, p, why)
	}
	if why := refused(p, extra); why != "" {
		return fmt.Errorf("%s is %w, because %s", p, ErrRepo, why)
	}
	return nil
}

// CheckHidden returns an error if p is, or lies in, a directory of a home whose name begins with a dot, such as
// ~/.ssh and ~/.config/x. Homes are the given ones and all directories directly below /home. They are absolute and
// clean; "/" is ignored.
func CheckHidden(p string, homes []string) error {
	if rest, ok := strings.CutPrefix(p, "/home/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		homes = append(slices.Clip(homes), "/home/"+name)
	}
	for _, home := range homes {
		if rest, ok := strings.CutPrefix(p, home+"/."); ok && home != "/" {
			name, _, _ := strings.Cut(rest, "/")
			return fmt.Errorf("%s is %w, because hidden directories of a home, such as %s/.%s, contain keys "+
				"and the settings and state of programs", p, ErrRepo, home, name)
		}
	}
	return nil
}

// refused returns the reason why p is refused as a repository or toolchain, "" if it is accepted.
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

// checkOverlap refuses a toolchain that contains the repository or lies in it: one of the two mounts would hide the
// other, or make it writable.
func checkOverlap(toolchain, repo string) error {
	if repo == "" || !below(toolchain, repo) && !below(repo, toolchain) {
		return nil
	}
	return fmt.Errorf("%s is %w: it overlaps the repository %s (hint: files in the repository need no toolchain entry)",
		toolchain, ErrToolchain, repo)
}

// checkToolchain checks the paths alone. It does not apply Places, because a toolchain such as /usr/lib/go may lie
// where a repository may not.
func checkToolchain(p, repo string) error {
	if why := badPath(p); why != "" {
		return fmt.Errorf("%w: toolchain %q: %s", ErrPath, p, why)
	}
	return checkOverlap(p, repo)
}
