package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", "version: 1\nmax_jobs: 7\n", 0o666)
	if c, err := Load(good, LoadOptions{}); err != nil || c.MaxJobs != 7 {
		t.Errorf("got %+v, %v", c, err)
	}
	if os.Geteuid() == 0 { // a trusted file and its directory must belong to root
		if _, err := Load(filepath.Join(dir, "absent"), LoadOptions{Trusted: true}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("absent: %v", err)
		}
	}
	if _, err := Load(filepath.Join(dir, "no", "absent"), LoadOptions{Trusted: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent with its directory: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Symlink(good, link), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:                       " is a symbolic link\nhint: put the file itself there",
		dir:                        " is not a regular file",
		filepath.Join(dir, "fifo"): " is not a regular file",
		write("large", "version: 1\n"+strings.Repeat("#\n", MaxSize/2), 0o600): " has 1048587 bytes, more than 1048576",
	} {
		if _, err := Load(path, LoadOptions{}); err == nil || err.Error() != path+want {
			t.Errorf("got %v, want %s%s", err, path, want)
		}
	}
}

// TestTrusted changes one permission at a time, each of which alone lets somebody else write the file or an entry beside it.
func TestTrusted(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	contents := map[string]string{
		"config.yaml": "version: 1\n", reposDir + "/x.yaml": "path: /x\n", principalsDir + "/x.yaml": "name: x\ntoken_sha256: '" + hash1 + "'\n",
	}
	for _, tt := range []struct {
		name            string
		dirMode, mode   os.FileMode
		dirOwner, owner int
		want            string // DIR and FILE stand for the paths
	}{
		{"root's", 0o755, 0o644, 0, 0, ""},
		{"root's alone", 0o700, 0o600, 0, 0, ""},
		{"another's", 0o755, 0o644, 0, 1000, "FILE belongs to user 1000: what the supervisor obeys must be root's\nhint: chown root FILE"},
		{"group's", 0o755, 0o664, 0, 0, "FILE can be written by others than root (mode 0664)\nhint: chmod go-w FILE"},
		{"everybody's", 0o755, 0o602, 0, 0, "FILE can be written by others than root (mode 0602)\nhint: chmod go-w FILE"},
		{"in another's directory", 0o755, 0o644, 1000, 0, "DIR belongs to user 1000: what the supervisor obeys must be root's\nhint: chown root DIR"},
		{"in a group's directory", 0o775, 0o644, 0, 0, "DIR can be written by others than root (mode 0775)\nhint: chmod go-w DIR"},
		{"in everybody's directory", 0o777, 0o644, 0, 0, "DIR can be written by others than root (mode 0777)\nhint: chmod go-w DIR"},
	} {
		for name, content := range contents {
			main := filepath.Join(t.TempDir(), "config.yaml")
			file := filepath.Join(filepath.Dir(main), name)
			dir := filepath.Dir(file)
			write(t, main, contents["config.yaml"])
			write(t, file, content)
			if err := errors.Join(os.Chmod(file, tt.mode), os.Chmod(dir, tt.dirMode), os.Chown(file, tt.owner, 0), os.Chown(dir, tt.dirOwner, 0)); err != nil {
				t.Fatal(err)
			}
			want := strings.NewReplacer("FILE", file, "DIR", dir).Replace(tt.want)
			if _, err := Load(main, LoadOptions{Trusted: true}); (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("%s, %s: got  %v\nwant %s", name, tt.name, err, want)
			}
			// A user does not accept another user's entry either, even beside a file that the command line names.
			if file == main || tt.owner+tt.dirOwner == 0 {
				continue
			}
			if _, err := Load(main, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "belongs to user 1000: what governs your jobs must be yours") {
				t.Errorf("%s, %s, a user's: %v", name, tt.name, err)
			}
		}
	}
}

// Load reads the file at path with the entry files beside it, and no other. The error wraps os.ErrNotExist if it does not exist.
func Load(path string, o LoadOptions) (Config, error) {
	return LoadFront(Source{Path: path, Options: o})
}

// TestUsersOfTheMachine: users are found by the accounts of the machine.
func TestUsersOfTheMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for users, want := range map[string]string{"[root, 12]": "", "[no-such-user-of-tests]": "unknown user \"no-such-user-of-tests\""} {
		write(t, file, "version: 1\nrepos: [{path: /x, users: "+users+"}]\n")
		c, err := Load(file, LoadOptions{})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", users, err, want)
			}
			continue
		}
		if err != nil || !slices.Equal(c.Repos[0].Users, []uint32{0, 12}) {
			t.Errorf("%s: %+v, %v", users, c.Repos, err)
		}
	}
}

// TestReadBounded: a file that has grown since its size was checked is refused.
func TestReadBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "12345")
	for size, want := range map[int64]string{5: "", 4: file + " has more than 4 bytes"} {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(f, size)
		f.Close()
		if (err == nil) != (want == "") || err != nil && err.Error() != want || err == nil && string(got.Content) != "12345" {
			t.Errorf("%d bytes: %+v, %v, want %q", size, got, err, want)
		}
	}
}
