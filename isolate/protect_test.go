package isolate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/job"
)

// guarded creates a repository with sensitive paths and a nested repository, without git's examples of hooks.
const guarded = `
git init -q --template= -b main . && git init -q --template= -b main libs/dep && mkdir .git/hooks libs/dep/.git/hooks
echo x >file; git add file; git commit -qm one
mkdir .vscode .github .github/workflows; echo '{}' >.vscode/tasks.json; echo on >.github/workflows/ci.yml
echo a >AGENTS.md; ln -s AGENTS.md CLAUDE.md; echo b >.envrc; ln file linked
`

// A change is what a job tries on protected paths, in Perl as in attempts. The expected answer of the kernel is want
// with hooks protected, and all, if set, when whole git directories are protected.
type change struct {
	name, code string
	want, all  string
}

// fchmodat2 is the number of that call on all architectures.
const fchmodat2 = 452

const rdwr = unix.O_WRONLY | unix.O_APPEND

// changes are tried one after the other. Those that are refused have no effect.
var changes = []change{
	{"write", `sysopen(my $f, ".git/config", ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)`, "EROFS", ""},
	{"truncate", call(unix.SYS_TRUNCATE, `".git/config"`, 0), "EROFS", ""},
	{"change mode", `kernel(chmod(0700, ".git/config") ? 0 : -1)`, "EROFS", ""},
	{"open to others", `kernel(chmod(0777, ".git/hooks") ? 0 : -1)`, "EPERM", ""},
	{"open to others, above", `kernel(chmod(0757, ".git") ? 0 : -1)`, "EPERM", ""},
	{"open to others, the root", `kernel(chmod(01777, ".") ? 0 : -1)`, "EPERM", ""},
	{"open to others, by descriptor", `opendir(my $d, ".git"); ` + call(unix.SYS_FCHMOD, "fileno($d)", 0o777), "EPERM", ""},
	{"open to others, by name below", call(unix.SYS_FCHMODAT, -100, `".git"`, 0o777), "EPERM", ""},
	{"open to others, by a high half", call(unix.SYS_FCHMODAT, -100, `".git"`, 1<<32|0o777), "EPERM", ""},
	{"open to others, by the new call", call(fchmodat2, -100, `".git"`, 0o777, 0), "ENOSYS", "ENOSYS"},
	{"default access list", call(unix.SYS_SETXATTR, `".git"`, `"system.posix_acl_default"`, `"x"`, 1, 0), "ENOTSUP", ""},
	{"default access list, by descriptor", `opendir(my $d, "."); ` + call(unix.SYS_FSETXATTR, "fileno($d)", `"system.posix_acl_default"`, `"x"`, 1, 0), "ENOTSUP", ""},
	{"access list, removed", call(unix.SYS_LREMOVEXATTR, `".git"`, `"system.posix_acl_access"`), "ENOTSUP", ""},
	{"change times", `kernel(utime(1, 1, ".git/config") ? 0 : -1)`, "EROFS", ""},
	{"extended attribute", call(unix.SYS_SETXATTR, `".git/config"`, `"user.x"`, `"x"`, 1, 0), "ENOTSUP", ""},
	{"remove", `kernel(unlink(".git/config") ? 0 : -1)`, "EBUSY", "EROFS"},
	{"rename", `kernel(rename(".git/config", ".git/c") ? 0 : -1)`, "EBUSY", "EROFS"},
	{"rename over", `open(my $f, ">", "new"); kernel(rename("new", ".envrc") ? 0 : -1)`, "EBUSY", ""},
	{"exchange", `open(my $f, ">", "new"); ` + call(unix.SYS_RENAMEAT2, -100, `"new"`, -100, `".envrc"`, unix.RENAME_EXCHANGE), "EBUSY", ""},
	{"another name, to write to", `kernel(link(".envrc", "hard") ? 0 : -1)`, "EXDEV", ""},
	{"through its descriptor", `open(my $f, "<", ".envrc"); sysopen(my $g, "/proc/self/fd/" . fileno($f), ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)`, "EROFS", ""},
	{"through its descriptor, by another process", `open(my $f, "<", ".envrc"); my $p = "/proc/$$/fd/" . fileno($f); pipe(my $r, my $w); if (!fork) { syswrite($w, sysopen(my $g, $p, ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)); POSIX::_exit(0) } sysread($r, my $b, 9); $b`, "EROFS", ""},
	{"hook", `sysopen(my $f, ".git/hooks/pre-commit", ` + fmt.Sprint(unix.O_CREAT|unix.O_WRONLY) + `) ? "ok" : kernel(-1)`, "EROFS", ""},
	{"hook by rename", `open(my $f, ">", "new"); kernel(rename("new", ".git/hooks/pre-commit") ? 0 : -1)`, "EXDEV", ""},
	{"hook by link", `kernel(symlink("../../file", ".git/hooks/pre-commit") ? 0 : -1)`, "EROFS", ""},
	{"hook by another name", `kernel(link("file", ".git/hooks/pre-commit") ? 0 : -1)`, "EROFS", ""},
	{"hook without a name, then with", `my $f = syscall(` + fmt.Sprintf("%d, -100, my $d = '.', %d, 0600", unix.SYS_OPENAT, unix.O_TMPFILE|unix.O_WRONLY) + `); ` +
		call(unix.SYS_LINKAT, -100, `"/proc/self/fd/$f"`, -100, `".git/hooks/pre-commit"`, unix.AT_SYMLINK_FOLLOW), "EROFS", ""},
	{"file without a name", call(unix.SYS_OPENAT, -100, `".git/hooks"`, unix.O_TMPFILE|unix.O_WRONLY, 0o600), "EROFS", ""},
	{"directory", `kernel(rename(".git/hooks", ".git/h") ? 0 : -1)`, "EBUSY", "EROFS"},
	{"directory, removed", `kernel(rmdir(".git/hooks") ? 0 : -1)`, "EBUSY", "EROFS"},
	{"directory above", `kernel(rename(".git", ".g") ? 0 : -1)`, "EBUSY", ""},
	{"directory above, exchanged", `mkdir("g"); ` + call(unix.SYS_RENAMEAT2, -100, `".git"`, -100, `"g"`, unix.RENAME_EXCHANGE), "EBUSY", ""},
	{"nested, two above", `kernel(rename("libs", "l") ? 0 : -1)`, "EBUSY", ""},
	{"nested", `sysopen(my $f, "libs/dep/.git/config", ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)`, "EROFS", ""},
	{"settings", `open(my $f, ">", ".vscode/new") ? "ok" : kernel(-1)`, "EROFS", ""},
	{"workflow", `kernel(unlink(".github/workflows/ci.yml") ? 0 : -1)`, "EROFS", ""},
	{"workflow, above", `kernel(rename(".github", ".g") ? 0 : -1)`, "EBUSY", ""},
	{"link", `kernel(unlink("CLAUDE.md") ? 0 : -1)`, "EBUSY", ""},
	{"link, replaced", `symlink("file", "new2"); kernel(rename("new2", "CLAUDE.md") ? 0 : -1)`, "EBUSY", ""},
	{"what a link leads to", `sysopen(my $f, "CLAUDE.md", ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)`, "EROFS", ""},
	{"memory map", `open(my $f, "+<", ".envrc") ? "ok" : kernel(-1)`, "EROFS", ""},
	{"allocate", `open(my $f, "<", ".envrc"); ` + call(unix.SYS_FALLOCATE, "fileno($f)", 0, 0, 4096), "EBADF", "EBADF"},
	{"unmount", call(unix.SYS_UMOUNT2, `".envrc"`, unix.MNT_DETACH), "EPERM", "EPERM"},

	{"permissions of what is beside", `mkdir("own"); kernel(chmod(0775, "own") ? 0 : -1)`, "ok", "ok"},
	{"index of git", `sysopen(my $f, ".git/index", ` + fmt.Sprint(rdwr) + `) ? "ok" : kernel(-1)`, "ok", "EROFS"},
	{"branch", `open(my $f, ">", ".git/refs/heads/x") ? "ok" : kernel(-1)`, "ok", "EROFS"},
	{"git directory", `mkdir(".git/new") ? "ok" : kernel(-1)`, "ok", "EROFS"},
	{"beside", `mkdir("libs/new") && open(my $f, ">", "libs/dep/new") ? "ok" : kernel(-1)`, "ok", "ok"},
}

// tries returns the Perl that tries the changes in list.
func tries(list []change) string {
	var b strings.Builder
	b.WriteString(prelude)
	for _, c := range list {
		fmt.Fprintf(&b, "attempt(%q, sub { no warnings; no strict; %s });\n", c.name, c.code)
	}
	return b.String()
}

// answers tries changes in one job and returns the result of each.
func (f *front) answers(list []change, p job.Protection) map[string]string {
	f.T.Helper()
	spec := f.Spec("/usr/bin/perl", "-e", tries(list))
	spec.Protect = p
	d := f.Run(spec)
	if d.Status != job.Success {
		f.T.Errorf("%+v\n%s", d.Result, d.Err)
	}
	got := map[string]string{}
	for line := range strings.Lines(d.Out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if n, err := strconv.Atoi(value); err == nil {
			value = unix.ErrnoName(unix.Errno(n))
		}
		got[name] = value
	}
	return got
}

// guardedFront returns a front of the shared supervisor whose repository has sensitive paths.
func guardedFront(t *testing.T) *front {
	t.Helper()
	return sharedFront(t).guard(t)
}

// guard creates sensitive paths in the front's repository.
func (f *front) guard(t *testing.T) *front {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("perl"), sandboxtest.Program("git"))
	shell(t, f.Repo, guarded)
	return f
}

func TestProtect(t *testing.T) {
	for _, p := range []job.Protection{job.ProtectHooks, job.ProtectAll} {
		t.Run(p.String(), func(t *testing.T) {
			f := guardedFront(t)
			got := f.answers(changes, p)
			for _, c := range changes {
				want := c.want
				if p == job.ProtectAll && c.all != "" {
					want = c.all
				}
				if got[c.name] != want {
					t.Errorf("%s: %s, want %s", c.name, got[c.name], want)
				}
			}
		})
	}
}

// renew is Perl that has the repository be as it was at the first call.
const renew = `system("[ -e /tmp/aside ] || cp -a . /tmp/aside; find . -mindepth 1 -delete && cp -a /tmp/aside/. .") == 0 or die "renew: $?"; `

// TestWithoutProtect: this step alone refuses what it refuses, except what is never allowed.
func TestWithoutProtect(t *testing.T) {
	f := newFront(t, skip(t, []string{"protect", "modes"})).guard(t)
	list := slices.Clone(changes)
	for i := range list {
		list[i].code = renew + list[i].code
	}
	got := f.answers(list, job.ProtectHooks)
	for _, c := range changes {
		if guarded := c.want != "ok" && c.want != c.all; guarded == (got[c.name] == c.want) {
			t.Errorf("%s: %s", c.name, got[c.name])
		}
	}
}

// TestProtectGit: with hooks protected a job can commit, with everything protected it cannot; with neither it can
// configure git, and sensitive files that it creates are reported.
func TestProtectGit(t *testing.T) {
	const commit = "echo y >>file; git -c user.name=a -c user.email=a commit -qam two && echo committed; " +
		"git config core.pager evil 2>/dev/null || echo refused; echo >.npmrc; git -c core.hooksPath=.git/hooks status -s file"
	for p, want := range map[job.Protection]string{job.ProtectHooks: "committed\nrefused", job.ProtectAll: "refused\n M file"} {
		f := guardedFront(t)
		spec := f.Spec("sh", "-c", commit)
		spec.Protect = p
		spec.Env = append(slices.Clone(environment), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/home/job")
		d := f.Run(spec)
		if strings.TrimRight(d.Out, "\n") != want || !slices.Equal(d.Sensitive, []string{".npmrc"}) {
			t.Errorf("%v: %q %q, %+v", p, d.Out, d.Err, d.Result)
		}
	}
}

// TestProtectFloor: a front-end can request more protection than the operator configured, but not less.
func TestProtectFloor(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	cases := []struct {
		operator, asked job.Protection
		workspace       job.Workspace
		want            string // the results of writing to the configuration and to the index
	}{
		{job.ProtectNone, job.ProtectNone, job.Direct, "written written"},
		{job.ProtectNone, job.ProtectHooks, job.Direct, "refused written"},
		{job.ProtectNone, job.ProtectAll, job.Direct, "refused refused"},
		{job.ProtectHooks, job.ProtectNone, job.Direct, "refused written"},
		{job.ProtectHooks, job.ProtectHooks, job.Direct, "refused written"},
		{job.ProtectHooks, job.ProtectAll, job.Direct, "refused refused"},
		{job.ProtectAll, job.ProtectNone, job.Direct, "refused refused"},
		{job.ProtectAll, job.ProtectHooks, job.Direct, "refused refused"},
		{job.ProtectAll, job.ProtectNone, job.ReadOnly, "refused refused"},
	}
	var entries []admit.Entry
	for _, tt := range cases {
		repo := newRepo(t)
		shell(t, repo, guarded)
		entries = append(entries, admit.Entry{Path: repo, Protect: tt.operator}, admit.Entry{Path: repo})
	}
	f := newFront(t, func(c *Config) { c.Repos = entries })
	for i, tt := range cases {
		f.Repo = entries[2*i].Path
		spec := f.Spec("sh", "-c", `w() { (echo >>"$1") 2>/dev/null && printf written || printf refused; }; w .git/config; printf " "; w .git/index`)
		spec.Protect, spec.Workspace = tt.asked, tt.workspace
		if d := f.Run(spec); d.Out != tt.want {
			t.Errorf("operator %v, requested %v in workspace %v: %q, want %q", tt.operator, tt.asked, tt.workspace, d.Out, tt.want)
		}
	}
}

// TestProtectSwapped: a process on the host repeatedly swaps a parent directory with a link. A job is refused, or all
// sensitive paths are protected; nothing is ever mounted elsewhere.
func TestProtectSwapped(t *testing.T) {
	f := newFront(t).guard(t)
	shell(t, f.Repo, "ln -s /etc libs-link; mkdir -p libs/other/.git; echo >libs/other/.envrc")
	end := exchange(f.Repo+"/libs", f.Repo+"/libs-link")
	defer end()
	ran, refused := 0, 0
	for range sandboxtest.Scale(40) {
		spec := f.Spec("sh", "-c", "grep ' /etc/' /proc/self/mountinfo | grep -vc ' /etc/passwd \\| /etc/group '; (echo >>.envrc) 2>/dev/null || echo refused")
		spec.Protect = job.ProtectHooks
		d, err := f.Try(spec)
		var refusal *job.Refusal
		switch {
		case err == nil && d.Out == "0\nrefused\n":
			ran++
		case errors.As(err, &refusal) && refusal.Step == "protect" && refusal.Errno == int(unix.ELOOP):
			refused++
		default:
			t.Fatalf("%q, %v", d.Out, err)
		}
	}
	t.Logf("%d ran, %d were refused", ran, refused)
}

// TestBounds: what a job is not to do with paths of its repository holds beside the sensitive paths that are protected, wherever they are:
// a repository that an earlier job has made in a directory uncovers nothing in it, and closes nothing that is open.
func TestBounds(t *testing.T) {
	f := sharedFront(t)
	shell(t, f.Repo, "git init -q --template= -b main; mkdir -p open/in config other; echo secret | tee config/secret open/secret .git/secret; echo x >config/data")
	const try = `for f in config/secret open/secret .git/secret; do cat $f 2>/dev/null && echo read $f; done
		w() { (echo evil >>"$1") 2>/dev/null && echo wrote $1; }; w config/data; w config/new; w open/new; w open/in/new; w top; w .git/config; w open/.git/config; exit 0`
	for name, tt := range map[string]struct {
		bounds job.Bounds
		want   string
	}{
		"hidden and read-only":     {"pconfig\x00rconfig/data\x00hconfig/secret\x00hopen/secret\x00h.git/secret\x00", "wrote config/new\nwrote open/new\nwrote open/in/new\nwrote top\n"},
		"a part is open":           {"oopen\x00r.\x00hconfig/secret\x00hopen/secret\x00h.git/secret\x00", "wrote open/new\nwrote open/in/new\n"},
		"a deep part is open":      {"oopen/in\x00r.\x00hconfig/secret\x00hopen/secret\x00h.git/secret\x00", "wrote open/in/new\n"},
		"hidden before read-only":  {"hconfig/secret\x00hopen/secret\x00h.git/secret\x00rconfig\x00ropen\x00", "wrote top\n"},
		"git directory as a whole": {"r.git\x00h.git/secret\x00hconfig\x00hopen\x00", "wrote top\n"},
	} {
		for range 2 {
			spec := f.Spec("sh", "-c", try)
			spec.Protect, spec.Bounds = job.ProtectHooks, tt.bounds
			if d := f.Run(spec); d.Out != tt.want {
				t.Errorf("%s: %q, want %q\n%+v %s", name, d.Out, tt.want, d.Result, d.Err)
			}
			// What an earlier job can do, for the second turn.
			shell(t, f.Repo, "git init -q --template= config; git init -q --template= open; git init -q --template= other; mkdir -p config/.git/hooks open/.git/hooks")
		}
		shell(t, f.Repo, "rm -rf config/.git open/.git other/.git top config/new open/new open/in/new")
	}
}
