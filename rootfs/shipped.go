package rootfs

import (
	"bufio"
	"bytes"
	"crypto/md5" //nolint:gosec // dpkg has no other checksum; what it must not let through is public anyway
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// The configuration files of Debian's packages are part of the packages, and so public: as long as the administrator has not
// changed one, its content is what everybody can download. dpkg knows their checksums (dpkg-query(1), Conffiles). A file with
// another content is copied only if the table has it.

// packageStatus is dpkg's database, which only root may write to.
const (
	packageStatusDir = "/var/lib/dpkg"
	packageStatus    = "status"
	maxStatus        = 64 << 20 // bytes
	maxStatusLine    = 64 << 10 // longer lines are skipped
)

// notShipped are the names below /etc that jobs do not see for a package: directories whose files say what the machine does by itself,
// which no program of a job reads, and files that a site's own package may have for its credentials.
var notShipped = []string{
	"environment", "gitconfig", "npmrc", "pip.conf", "wgetrc", "curlrc", "gemrc",

	"apparmor.d", "apt", "cron.*", "default", "dbus-1", "grub.d", "init", "init.d", "initramfs-tools", "kernel", "logcheck",
	"logrotate.d", "modprobe.d", "modules-load.d", "network", "pam.d", "ppp", "rc*.d", "rsyslog.d", "security", "ssh", "sudoers.d",
	"sysctl.d", "systemd", "tmpfiles.d", "udev", "ufw",
}

// A shippedDir has the configuration files of packages in a directory below /etc.
type shippedDir struct {
	dirs  map[string]*shippedDir
	files map[string][md5.Size]byte
}

// shipped copies the configuration files of packages that are as their packages have them. What is missing or was changed is
// nothing to report.
func (c *copier) shipped(top *os.File, names []string) {
	files, err := c.shippedFiles()
	if err != nil {
		c.transient = c.transient || !errors.Is(err, unix.ENOENT) // without dpkg there are none
		return
	}
	c.quiet = true
	c.shippedIn(top, names, files)
	c.quiet = false
}

func (c *copier) shippedIn(d *os.File, names []string, of *shippedDir) {
	for _, name := range names {
		if sum, ok := of.files[name]; ok {
			c.accept = func(data []byte) bool { return md5.Sum(data) == sum } //nolint:gosec // see the import
			c.node(d, name, plain, 1)
			c.accept = nil
		}
		if below, ok := of.dirs[name]; ok {
			c.within(d, name, func(sub *os.File, names []string) { c.shippedIn(sub, names, below) })
		}
	}
}

// shippedFiles reads the database of packages.
func (c *copier) shippedFiles() (*shippedDir, error) {
	dir, err := c.open(packageStatusDir, unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	c.etc.add(dir)
	fd, err := openat(dir, packageStatus, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), packageStatus)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != c.uid || st.Mode&0o022 != 0 || st.Size > maxStatus {
		return &shippedDir{}, nil
	}
	return parseStatus(io.LimitReader(f, maxStatus))
}

// parseStatus reads the paths and checksums of configuration files below /etc: lines " PATH MD5", perhaps with a word after
// them, in the field Conffiles of each package (deb822(5)).
func parseStatus(r io.Reader) (*shippedDir, error) {
	all, count, here := &shippedDir{}, 0, false
	b := bufio.NewReaderSize(r, maxStatusLine)
	for {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			here = false
			continue
		}
		switch {
		case len(line) == 0:
		case line[0] != ' ':
			here = string(bytes.TrimSpace(line)) == "Conffiles:"
		case here && count < maxCount && all.add(string(line)):
			count++
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// add adds the file of a line, unless the line is malformed, or about something else than a file below /etc that jobs may need.
func (d *shippedDir) add(line string) bool {
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 3 {
		return false
	}
	p, ok := strings.CutPrefix(words[0], "/etc/")
	sum, err := hex.DecodeString(words[1])
	if !ok || err != nil || len(sum) != md5.Size || badPath(words[0]) != "" {
		return false
	}
	names := strings.Split(p, "/")
	for _, pattern := range notShipped {
		if is, _ := path.Match(pattern, names[0]); is || len(names) > maxDepth {
			return false
		}
	}
	last := len(names) - 1
	for _, name := range names[:last] {
		below := d.dirs[name]
		if below == nil {
			below = &shippedDir{}
			if d.dirs == nil {
				d.dirs = map[string]*shippedDir{}
			}
			d.dirs[name] = below
		}
		d = below
	}
	if d.files == nil {
		d.files = map[string][md5.Size]byte{}
	}
	d.files[names[last]] = [md5.Size]byte(sum)
	return true
}
