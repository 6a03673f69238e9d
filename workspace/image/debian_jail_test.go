package image

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// inJail imports an archive of Debian by command line, and uses it in sessions.
func inJail(t *testing.T, work, root, archive string) {
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
	// Only root may read the archive; as standard input, it is open for the unprivileged user too.
	if out := corral(f, "rootfs", "import", "debian", "-", "--disk", "1g", "--supervisor", socket); !strings.HasPrefix(out, "root file system debian: ") {
		t.Fatal("the import failed: ", out)
	}
	id := corral(nil, "session", "open", "--root", "--image", "debian", "--supervisor", socket)
	if len(id) != 32 {
		t.Fatalf("no session: %q", id)
	}
	run := func(command string) string {
		return corral(nil, "session", "exec", id, "--supervisor", socket, "--", "/bin/sh", "-c", command)
	}
	localPackage(t, repo)
	release, err := os.ReadFile(filepath.Join(root, "etc/debian_version"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ command, want string }{
		{"cat /etc/debian_version", strings.TrimSpace(string(release))},
		{"dpkg --verify", ""}, // compares files with the digests in their packages
		{"perl -e 'print 6 * 7'", "42"},
		{installLocal, "configured\nhello from a package\ninstall ok installed"},
		// Image files of another owner, of other types, or with set-id bits.
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
		t.Errorf("a new session sees changes of the first: %q", got)
	}
	corral(nil, "session", "close", id, "--supervisor", socket)
	corral(nil, "rootfs", "remove", "debian", "--supervisor", socket)
}

// installLocal installs the package of localPackage with apt-get, as a user would, and shows what came of it.
const installLocal = `set -e; printf 'deb [trusted=yes] file:%s ./\n' "$PWD" >/etc/apt/sources.list; rm -f /etc/apt/sources.list.d/*
	{ apt-get -qq update && apt-get -qq install --yes corral-hello; } >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
	cat /var/lib/corral-hello/state; corral-hello; dpkg-query -W -f '${Status}' corral-hello`

// localPackage makes dir a repository of apt with one package. Its files are of root and of another user, and a script of it runs
// when it is installed.
func localPackage(t *testing.T, dir string) {
	t.Helper()
	from := t.TempDir()
	for name, content := range map[string]string{
		"DEBIAN/control":       "Package: corral-hello\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: a test\n",
		"DEBIAN/postinst":      "#!/bin/sh\nset -e\nmkdir -p /var/lib/corral-hello\necho configured >/var/lib/corral-hello/state\n",
		"usr/bin/corral-hello": "#!/bin/sh\necho hello from a package\n", "var/games/corral-hello/scores": "1\n",
	} {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(from, 0o755), os.Chown(filepath.Join(from, "var/games/corral-hello/scores"), 5, 60)); err != nil {
		t.Fatal(err)
	}
	const file = "corral-hello.deb"
	if out, err := exec.Command("dpkg-deb", "--build", from, filepath.Join(dir, file)).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v, %s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	fields, err := exec.Command("dpkg-deb", "--field", filepath.Join(dir, file)).Output()
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n", fields, file, len(content), sha256.Sum256(content))
	if err := os.WriteFile(filepath.Join(dir, "Packages"), []byte(index), 0o644); err != nil { //nolint:gosec // apt reads it
		t.Fatal(err)
	}
}
