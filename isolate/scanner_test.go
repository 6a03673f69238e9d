package isolate

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSensitive: a job's result names the files that it created or changed and that make tools on the host run code.
func TestSensitive(t *testing.T) {
	f := sharedFront(t)
	mkdir(t, f.Repo+"/.git", owner)
	mkdir(t, f.Repo+"/.git/hooks", owner)
	put(t, f.Repo+"/.git/config", "[core]\n", 0o644, owner)
	for _, tt := range []struct {
		script string
		want   []string
	}{
		{"true", nil},
		{"echo x >file; mkdir -p src; echo y >src/main.c", nil},
		{"echo '[alias]' >>.git/config", []string{".git/config"}},
		{"true", nil},
		{"cat .git/config", nil},
		{"echo x >.git/hooks/pre-commit", []string{".git/hooks/pre-commit"}},
		{"mkdir -p a/b/.vscode; echo x >a/b/.vscode/tasks.json; echo y >.envrc", []string{".envrc", "a/b/.vscode/tasks.json"}},
		{"rm file", nil},
	} {
		f.Settle()
		d := f.Run(f.Spec("sh", "-c", tt.script))
		// A new directory may be reported besides the files in it.
		got := slices.DeleteFunc(slices.Clone(d.Sensitive), func(p string) bool { return p == "a/b/.vscode" })
		if !slices.Equal(got, tt.want) || d.SensitiveIncomplete || d.SensitiveMore != 0 {
			t.Errorf("%s: %q, %+v", tt.script, d.Sensitive, d.Result)
		}
	}
}

// TestSensitiveConcurrent: a job's result has its changes even if another job of the jail ended meanwhile and
// reported them first. Files, permissions and removals are compared in different ways.
func TestSensitiveConcurrent(t *testing.T) {
	f := sharedFront(t)
	mkdir(t, f.Repo+"/.git", owner)
	mkdir(t, f.Repo+"/.git/hooks", owner)
	put(t, f.Repo+"/.git/config", "[core]\n", 0o644, owner)
	put(t, f.Repo+"/.envrc", "x\n", 0o644, owner)
	f.Sh("true") // builds the jail
	want := []string{".envrc", ".git/config", ".git/hooks", ".git/hooks/pre-commit"}
	for _, beside := range []string{"true", "echo x >file", "echo y >.npmrc"} {
		t.Run(beside, func(t *testing.T) {
			f.Settle()
			spec := f.Spec("sh", "-c", "echo x >.git/hooks/pre-commit; echo '[alias]' >>.git/config; rm .envrc; chmod 777 .git/hooks; : >planted; until [ -e go ]; do sleep 0.02; done; rm go planted")
			l, err := f.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() string {
				if !exists(f.Repo + "/planted") {
					return "nothing planted"
				}
				return ""
			})
			f.Settle()
			f.Sh(beside)
			put(t, f.Repo+"/go", "", 0o644, owner)
			d, err := l.End()
			if err != nil || d.SensitiveIncomplete {
				t.Errorf("%+v, %v", d.Result, err)
			}
			for _, path := range want {
				if !slices.Contains(d.Sensitive, path) {
					t.Errorf("%q lacks %s", d.Sensitive, path)
				}
			}
			// Restore the state for the next subtest.
			f.Sh("rm -f .git/hooks/pre-commit .npmrc; chmod 755 .git/hooks; echo x >.envrc")
		})
	}
}

// TestSensitiveNames: names are reported byte by byte.
func TestSensitiveNames(t *testing.T) {
	f := sharedFront(t)
	d := f.Run(f.Spec("perl", "-e", `my $n = "odd\n\x1b[2J\xff name"; mkdir $n; open(F, ">$n/.envrc"); print F "x"`))
	if want := []string{"odd\n\x1b[2J\xff name/.envrc"}; !slices.Equal(d.Sensitive, want) {
		t.Errorf("%q, want %q", d.Sensitive, want)
	}
}

// TestSensitiveMany: a long list is cut, and the rest counted.
func TestSensitiveMany(t *testing.T) {
	f := newFront(t)
	d := f.Run(f.Spec("perl", "-e", `for (1..2000) { mkdir "d$_"; open(F, ">d$_/.envrc"); close F }`))
	if len(d.Sensitive) == 0 || len(d.Sensitive)+d.SensitiveMore < 2000 && !d.SensitiveIncomplete {
		t.Errorf("%d and %d more", len(d.Sensitive), d.SensitiveMore)
	}
	if strings.Join(d.Sensitive, "") == "" {
		t.Error("empty names")
	}
}

// TestScannerKilled: without its scanner a jail reports that its result is incomplete. The next job gets another jail
// with a scanner; jobs in the old one continue.
func TestScannerKilled(t *testing.T) {
	f := newFront(t)
	l := f.Waiting()
	j := f.s.standing()[0]
	if err := unix.Kill(j.ScannerPID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, unknown := range []bool{true, false} {
		f.Settle()
		d := f.Run(f.Spec("sh", "-c", "echo x >>.envrc"))
		if d.SensitiveIncomplete != unknown || d.ExitCode != 0 || slices.Equal(d.Sensitive, []string{".envrc"}) == unknown {
			t.Errorf("%+v", d.Result)
		}
	}
	if err := l.Signal(int(unix.SIGTERM), false); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); err != nil || d.ExitCode != 5 {
		t.Errorf("in the old jail: %+v, %v", d.Result, err)
	}
	eventually(t, func() string {
		if blocks := blocks(f.s.InstanceName()); len(blocks) > 1 {
			return strings.Join(blocks, ", ")
		}
		return ""
	})
}

// TestReportsHiddenAndOpened: the confined scanner can read what it needs to detect that a job hides new files from
// git, or opens a directory to other users.
func TestReportsHiddenAndOpened(t *testing.T) {
	f := guardedFront(t)
	for _, tt := range []struct {
		script string
		want   []string
	}{
		{"git update-index --assume-unchanged file", nil},
		{"mkdir -p .git/info; echo x >>.git/info/exclude", []string{".git/info/exclude"}},
		{"chmod 777 .git/hooks libs", []string{".git/hooks", "libs"}},
		{"chmod 755 .git/hooks libs; mkdir -p .git/refs/replace; echo x >.git/refs/replace/x", []string{".git/hooks", ".git/refs/replace/x", "libs"}},
		{"echo more >>file; git -c user.name=a -c user.email=a commit -qam more --allow-empty; git status >/dev/null", nil},
	} {
		spec := f.Spec("sh", "-ec", tt.script)
		spec.Env = append(slices.Clone(environment), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/home/job")
		d := f.Run(spec)
		if d.ExitCode != 0 || !slices.Equal(d.Sensitive, tt.want) || d.SensitiveIncomplete {
			t.Errorf("%s: %+v %s", tt.script, d.Result, d.Err)
		}
	}
}
