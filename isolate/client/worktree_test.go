package client

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
)

// git runs a script with git in dir.
func git(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
}

// TestCommon: main is a repository, wt a worktree of it. Only a worktree that its git directory names is accepted.
func TestCommon(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, tt := range []struct {
		name, made string
		repo       string // "" is wt
		want       string // "" is none
	}{
		{"worktree", "", "", "main/.git"},
		{"repository", "", "main", ""},
		{"no repository", "mkdir x", "x", ""},
		{"not there", "", "x", ""},
		{"in the repository", "git -C main worktree add -q in/side", "main/in/side", "main/.git"},
		{"of a bare repository", "git clone -q --bare main b.git; git -C b.git worktree add -q ../x", "x", "b.git"},
		{"in a bare repository", "git clone -q --bare main b.git; git -C b.git worktree add -q x", "b.git/x", "b.git"},
		{"relative", "echo gitdir: ../main/.git/worktrees/wt >wt/.git; echo ../../../../wt/.git >main/.git/worktrees/wt/gitdir", "", "main/.git"},
		{"no line's end", "printf 'gitdir: %s' $PWD/main/.git/worktrees/wt >wt/.git", "", "main/.git"},
		{"moved", "mv wt x", "x", ""},
		{"its git directory moved", "mv main x", "", ""},
		{"by a link", "ln -s wt link", "link", ""},
		{"submodule", "git -c protocol.file.allow=always -C main submodule --quiet add ../wt sub", "main/sub", "main/.git/modules/sub"},
		{"submodule of a worktree", "git -c protocol.file.allow=always -C wt submodule --quiet add ../main sub", "wt/sub", "main/.git/worktrees/wt/modules/sub"},
		{"separate git directory", "git init -q --separate-git-dir=$PWD/x.git x; git -C x config core.worktree $PWD/x", "x", "x.git"},
		{"separate git directory that does not name it", "git init -q --separate-git-dir=$PWD/x.git x", "x", ""},
		{"of another submodule", "for n in x y; do git init -q --separate-git-dir=$PWD/$n.git $n; git -C $n config core.worktree $PWD/$n; done; cp y/.git x/.git", "x", ""},
		{"two of core.worktree", "git init -q --separate-git-dir=$PWD/x.git x; git -C x config core.worktree $PWD/x; git config -f x.git/config --add core.worktree $PWD/main", "x", ""},
		{"core.worktree of a section that is not core", "git init -q --separate-git-dir=$PWD/x.git x; git -C x config core.worktree $PWD/x; sed -i s/core/score/ x.git/config", "x", ""},
		{"a configuration that is a link", "git init -q --separate-git-dir=$PWD/x.git x; git -C x config core.worktree $PWD/x; mv x.git/config c; ln -s ../c x.git/config", "x", ""},
		{"a configuration that is a pipe", "git init -q --separate-git-dir=$PWD/x.git x; git -C x config core.worktree $PWD/x; rm x.git/config; mkfifo x.git/config", "x", ""},
		{"a separate git directory in it", "git init -q x; mv x/.git x/g; echo gitdir: g >x/.git; git config -f x/g/config core.worktree $PWD/x", "x", ""},

		{"no such directory", "echo gitdir: $PWD/no/.git/worktrees/wt >wt/.git", "", ""},
		{"of the main worktree", "echo gitdir: $PWD/main/.git >wt/.git", "", ""},
		{"of another worktree", "git -C main worktree add -q ../other; cp other/.git wt/.git", "", ""},
		{"without an entry for the worktree", "git init -q x; git -C x commit -q --allow-empty -m x; git -C x worktree add -q ../y; cp y/.git wt/.git", "", ""},
		{"no back pointer", "rm main/.git/worktrees/wt/gitdir", "", ""},
		{"empty back pointer", ": >main/.git/worktrees/wt/gitdir", "", ""},
		{"back pointer that is a link", "mv main/.git/worktrees/wt/gitdir main/.git/g; ln -s ../../g main/.git/worktrees/wt/gitdir", "", ""},
		{"back pointer that is a pipe", "rm main/.git/worktrees/wt/gitdir; mkfifo main/.git/worktrees/wt/gitdir", "", ""},
		{"another common directory", "echo ../.. >x; echo $PWD/other >main/.git/worktrees/wt/commondir", "", ""},
		{"no common directory", "rm main/.git/worktrees/wt/commondir", "", ""},
		{"no git directory", "mkdir -p home/worktrees/wt; echo gitdir: $PWD/home/worktrees/wt >wt/.git; echo $PWD/wt/.git >home/worktrees/wt/gitdir; echo ../.. >home/worktrees/wt/commondir", "", ""},
		{"without refs", "rm -r main/.git/refs", "", ""},
		{"objects that are a link", "mv main/.git/objects x; ln -s ../../x main/.git/objects", "", ""},
		{"through a link", "ln -s main link; echo gitdir: $PWD/link/.git/worktrees/wt >wt/.git", "", ""},
		{"through a link in it", "mv main/.git/worktrees x; ln -s ../../x main/.git/worktrees", "", ""},
		{"through ..", "echo gitdir: $PWD/main/.git/worktrees/../../.git/worktrees/wt >wt/.git", "", "main/.git"},
		{"in the worktree itself", "cp -r main/.git wt/g; echo gitdir: $PWD/wt/g/worktrees/wt >wt/.git; echo $PWD/wt/.git >wt/g/worktrees/wt/gitdir", "", ""},
		{"a .git that is a link", "mv wt/.git x; ln -s ../x wt/.git", "", ""},
		{"a .git that is a pipe", "rm wt/.git; mkfifo wt/.git", "", ""},
		{"an empty .git", ": >wt/.git", "", ""},
		{"a .git of two lines", "echo >>wt/.git; echo x >>wt/.git", "", ""},
		{"a long .git", "printf 'gitdir: /%s' $(head -c 9000 /dev/zero | tr '\\0' x) >wt/.git", "", ""},
		{"another word", "sed -i s/gitdir/gitfile/ wt/.git", "", ""},
		{"nothing but the word", "echo 'gitdir: ' >wt/.git", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			top := withWorktree(t, tt.made)
			repo := tt.repo
			if repo == "" {
				repo = "wt"
			}
			path, dir, err := Common(filepath.Join(top, repo))
			switch {
			case tt.want == "":
				if err == nil {
					t.Errorf("%s", path)
				}
			case err != nil || path != filepath.Join(top, tt.want):
				t.Errorf("%q, %v", path, err)
			case !same(t, dir, path):
				t.Error("the open directory is not the one returned")
			}
			dir.Close()
		})
	}
}

// withWorktree makes a repository main with a worktree wt, runs a script in the directory of both, and returns that.
func withWorktree(t *testing.T, script string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	git(t, top, "git init -q -b main main; git -C main commit -q --allow-empty -m one; git -C main worktree add -q ../wt\n"+script)
	return top
}

// TestOtherWorktrees: the worktrees of a repository count that are outside of it and name their entries in turn.
func TestOtherWorktrees(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, tt := range []struct {
		name, made string
		repo       string // "" is main
		common     string // "" is none
		want       string // worktrees; "" is none
	}{
		{"none", "git -C main worktree remove ../wt", "", "", ""},
		{"no repository", "mkdir x", "x", "", ""},
		{"one", "", "", "", "wt"},
		{"two, one of them locked", "git -C main worktree add -q --lock ../a", "", "", "a wt"},
		{"in the repository", "git -C main worktree add -q in/side", "", "", "wt"},
		{"of the job's worktree", "git -C main worktree add -q ../a", "a", "main/.git", "wt"},
		{"of a worktree in the repository", "git -C main worktree add -q in/side", "main/in/side", "main/.git", "wt"},
		{"of a bare repository", "git clone -q --bare main b.git; git -C b.git worktree add -q ../x; git -C b.git worktree add -q y", "b.git", "", "x"},
		{"of a separate git directory", "git init -q --separate-git-dir=$PWD/x.git x; git -C x commit -q --allow-empty -m x; git -C x worktree add -q ../y", "x", "x.git", "y"},
		{"relative", "echo gitdir: ../main/.git/worktrees/wt >wt/.git; echo ../../../../wt/.git >main/.git/worktrees/wt/gitdir", "", "", "wt"},

		{"removed", "rm -r wt", "", "", ""},
		{"moved", "mv wt x", "", "", ""},
		{"repaired", "mv wt x; git -C main worktree repair $PWD/x", "", "", "x"},
		{"what a job wrote", "mkdir main/.git/worktrees/x secret; echo $PWD/secret/.git >main/.git/worktrees/x/gitdir; echo x >secret/.git", "", "", "wt"},
		{"of another repository", "git init -q x; git -C x commit -q --allow-empty -m x; git -C x worktree add -q ../y; echo $PWD/y/.git >main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a repository", "git init -q x; echo $PWD/x/.git >main/.git/worktrees/wt/gitdir", "", "", ""},
		{"of another entry", "cp -r main/.git/worktrees/wt main/.git/worktrees/a", "", "", "wt"},
		{"another name than .git", "mv wt/.git wt/x; echo $PWD/wt/x >main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a .git that is a pipe", "rm wt/.git; mkfifo wt/.git", "", "", ""},
		{"a .git that is a link", "mv wt/.git x; ln -s ../x wt/.git", "", "", ""},
		{"by a link", "ln -s wt link; echo $PWD/link/.git >main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a file for an entry", "echo >main/.git/worktrees/a", "", "", "wt"},
		{"no gitdir", "rm main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a gitdir that is a link", "mv main/.git/worktrees/wt/gitdir x; ln -s $PWD/x main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a gitdir that is a pipe", "rm main/.git/worktrees/wt/gitdir; mkfifo main/.git/worktrees/wt/gitdir", "", "", ""},
		{"a long gitdir", "head -c 9000 /dev/zero | tr '\\0' x >main/.git/worktrees/wt/gitdir", "", "", ""},
		{"an entry that is a link", "mv main/.git/worktrees/wt x; ln -s $PWD/x main/.git/worktrees/wt", "", "", ""},
		{"worktrees that are a link", "mv main/.git/worktrees x; ln -s ../../x main/.git/worktrees", "", "", ""},
		{"worktrees that are a file", "rm -r main/.git/worktrees; echo >main/.git/worktrees", "", "", ""},
		{"a .git that is a link to a directory", "mv main/.git g; ln -s ../g main/.git", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			top := withWorktree(t, tt.made)
			common, want := "", ""
			if tt.common != "" {
				common = filepath.Join(top, tt.common)
			}
			for _, name := range strings.Fields(tt.want) {
				want += filepath.Join(top, name, ".git") + "\x00"
			}
			if got := otherWorktrees(filepath.Join(top, cmp.Or(tt.repo, "main")), common); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestOtherWorktreesBounds: of more worktrees than a message has room for, some are listed.
func TestOtherWorktreesBounds(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const many = wire.MaxWorktrees / 200
	long := strings.Repeat("x", 200)
	git(t, top, fmt.Sprintf(`for i in $(seq %d); do mkdir -p main/.git/worktrees/$i %[2]s$i
		echo $PWD/%[2]s$i/.git >main/.git/worktrees/$i/gitdir; echo gitdir: $PWD/main/.git/worktrees/$i >%[2]s$i/.git; done`, many, long))
	list := otherWorktrees(filepath.Join(top, "main"), "")
	if n := strings.Count(list, "\x00"); len(list) > wire.MaxWorktrees || n < many/2 || n >= many || !strings.HasSuffix(list, "/.git\x00") {
		t.Errorf("%d worktrees, %d bytes", n, len(list))
	}
}

func same(t *testing.T, f *os.File, path string) bool {
	t.Helper()
	open, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(open, there)
}
