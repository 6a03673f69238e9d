package embed

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/test/sandboxtest"
)

// TestMain runs, in a child, the process that drops root.
func TestMain(m *testing.M) {
	if uid, err := strconv.Atoi(os.Getenv("EMBED_TEST_BECOME")); err == nil {
		os.Exit(becomes(uid))
	}
	if secret, own, ok := strings.Cut(os.Getenv("EMBED_TEST_LOWER"), ":"); ok {
		if err := lowers(secret, own); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func becomes(uid int) int {
	runtime.LockOSThread() // with a C library only this thread sets no_new_privs, and the test reads its status
	if err := (Identity{uid, uid + 1}).Become(); err != nil {
		println(err.Error())
		return 1
	}
	if err := syscall.Setresuid(0, 0, 0); !errors.Is(err, unix.EPERM) {
		println("root again:", err)
		return 2
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		println(err.Error())
		return 3
	}
	_, _ = os.Stdout.Write(status)
	return 0
}

// TestBecome: a process that dropped root has no other ids, groups or capabilities, and cannot get them back.
func TestBecome(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"EMBED_TEST_BECOME=54321"}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{4, 24}}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Join(strings.Fields(value), " ")
	}
	for name, want := range map[string]string{
		"Uid": "54321 54321 54321 54321", "Gid": "54322 54322 54322 54322", "Groups": "", "NoNewPrivs": "1",
		"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// TestChoose: the identity is the user of sudo, user corral or nobody, and never root.
func TestChoose(t *testing.T) {
	const nobody = 70000
	tests := []struct {
		name     string
		uid, gid string     // of SUDO_
		corral   *user.User // nil: there is none
		nobody   int
		want     Identity
		err      string
	}{
		{"sudo", "1000", "1001", nil, nobody, Identity{1000, 1001}, ""},
		{"sudo before corral", "1000", "1001", &user.User{Uid: "900", Gid: "901"}, nobody, Identity{1000, 1001}, ""},
		{"root by sudo", "0", "0", nil, nobody, Identity{nobody, nobody}, ""},
		{"group of root by sudo", "1000", "0", &user.User{Uid: "900", Gid: "901"}, nobody, Identity{900, 901}, ""},
		{"half of sudo", "1000", "", nil, nobody, Identity{nobody, nobody}, ""},
		{"no number", "1000x", "1000", nil, nobody, Identity{nobody, nobody}, ""},
		{"negative", "-1", "-1", nil, nobody, Identity{nobody, nobody}, ""},
		{"all bits", "4294967295", "4294967295", nil, nobody, Identity{nobody, nobody}, ""},
		{"corral", "", "", &user.User{Uid: "900", Gid: "901"}, nobody, Identity{900, 901}, ""},
		{"corral is root", "", "", &user.User{Uid: "0", Gid: "901"}, nobody, Identity{}, "must not be root"},
		{"corral of group root", "", "", &user.User{Uid: "900", Gid: "0"}, nobody, Identity{}, "must not be root"},
		{"corral has no number", "", "", &user.User{Uid: "S-1", Gid: "901"}, nobody, Identity{}, "has the ids"},
		{"nobody", "", "", nil, nobody, Identity{nobody, nobody}, ""},
		{"nobody was named", "", "", nil, 0, Identity{}, "must not be root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			getenv := func(name string) string { return map[string]string{"SUDO_UID": tt.uid, "SUDO_GID": tt.gid}[name] }
			lookup := func(name string) (*user.User, error) {
				if name != "corral" || tt.corral == nil {
					return nil, user.UnknownUserError(name)
				}
				return tt.corral, nil
			}
			got, err := choose(getenv, lookup, Identity{tt.nobody, tt.nobody})
			switch {
			case tt.err == "" && (err != nil || got != tt.want):
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("got %v, %v; want an error with %q", got, err, tt.err)
			}
		})
	}
}

// TestCommand: the supervisor gets the options as arguments, one descriptor and a fixed environment.
func TestCommand(t *testing.T) {
	o := Options{Program: "/x/corrald", Repos: []string{"/a", "/b c"}, Toolchains: []string{"/go"}, Owners: map[string]uint32{"/a": 7}, Network: "npm example.org"}
	whose := directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}
	cmd := o.command(os.Stdin, whose, map[string]string{"/a": "/m/.git", "/c": "/d"})
	want := []string{
		"/x/corrald", "--embedded", "3", "--account", "1000:1001:4,27",
		"--repo", "/a", "--owner", "7", "--common", "/m/.git", "--repo", "/b c", "--toolchain", "/go", "--network", "npm example.org",
	}
	if !slices.Equal(cmd.Args, want) {
		t.Errorf("got %q, want %q", cmd.Args, want)
	}
	if len(cmd.ExtraFiles) != 1 || !cmd.SysProcAttr.Setsid || slices.ContainsFunc(cmd.Env, func(v string) bool {
		return !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "CORRAL_")
	}) {
		t.Errorf("descriptors %v, environment %q", cmd.ExtraFiles, cmd.Env)
	}
}

// TestNoSupervisor: if the supervisor does not start, the caller gets an error and is still root.
func TestNoSupervisor(t *testing.T) {
	for program, want := range map[string]string{"/bin/false": "the supervisor did not start", "/nonexistent/corrald": "no such file"} {
		before := os.Geteuid()
		c, _, err := Start(Options{Program: program})
		if c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", program, err, want)
		}
		if os.Geteuid() != before {
			t.Fatalf("%s: became user %d", program, os.Geteuid())
		}
	}
}

// TestImages: only a front-end that requests it may create root file systems.
func TestImages(t *testing.T) {
	for _, images := range []bool{false, true} {
		cmd := (&Options{Program: "/corrald", Images: images}).command(os.Stdin, directory.Account{}, nil)
		if slices.Contains(cmd.Args, "--images") != images {
			t.Errorf("images %v: %q", images, cmd.Args)
		}
	}
}
