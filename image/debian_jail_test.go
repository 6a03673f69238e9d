package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/sandboxtest"
)

// inJail imports an archive of a Debian as people do, and has a session begin with it.
func inJail(t *testing.T, work, archive string) {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.FileSystem("overlay"), sandboxtest.FileSystem("ext4"))
	socket := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Args: []string{"--state", filepath.Join(work, "state")}}).Socket
	repo := filepath.Join(work, "repo")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	corral := func(stdin *os.File, args ...string) string {
		cmd := exec.Command(sandboxtest.Bin(t, "corral"), args...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + work}
		cmd.Dir = repo
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
		if err := cmd.Run(); err != nil {
			t.Errorf("corral %q: %v, %s%s", args, err, out.Bytes(), errs.Bytes())
		}
		return strings.TrimSpace(out.String())
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// It is only root's to read, as a Debian's files are; as standard input, who it becomes can.
	if out := corral(f, "rootfs", "import", "debian", "-", "--disk", "1g", "--supervisor", socket); !strings.HasPrefix(out, "root file system debian: ") {
		t.Fatal("it was not imported: ", out)
	}
	id := corral(nil, "session", "open", "--root", "--image", "debian", "--supervisor", socket)
	if len(id) != 32 {
		t.Fatalf("no session: %q", id)
	}
	run := func(command string) string {
		return corral(nil, "session", "exec", id, "--supervisor", socket, "--", "/bin/sh", "-c", command)
	}
	release, err := os.ReadFile(filepath.Join(work, "debian/etc/debian_version"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, want string }{
		{"cat /etc/debian_version", strings.TrimSpace(string(release))},
		{"dpkg --verify", ""}, // it compares the files of each package with its list of their digests
		{"perl -e 'print 6 * 7'", "42"},
		// What is neither the job's, nor a directory, file or link, or has a set-id bit: of what is of the image.
		{"find / -xdev \\( -perm /6000 -o ! -type d ! -type f ! -type l -o ! -uid $(id -u) \\) | grep -Ev '^/(proc|dev|sys|run)(/|$)' | head", ""},
		{"rm /usr/bin/perl && echo x >/usr/bin/new && chmod 755 /etc/shadow && stat -c %a /etc/shadow", "755"},
	} {
		if got := run(tt.command); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
	}
	corral(nil, "session", "close", id, "--supervisor", socket)
	id = corral(nil, "session", "open", "--root", "--image", "debian", "--supervisor", socket)
	if got := run("perl -e 'print 1'; ls /usr/bin/new 2>/dev/null || true"); got != "1" {
		t.Errorf("another session has what one wrote: %q", got)
	}
	corral(nil, "session", "close", id, "--supervisor", socket)
	corral(nil, "rootfs", "remove", "debian", "--supervisor", socket)
}
