package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// works are usual work in a repository, one job each. Each continues where the one before it stopped.
var works = []struct{ program, line string }{
	{"git", `test -z "$(git status --porcelain)" && git log --oneline | head -1`},
	{"git", `echo "one more line" >>README.md && git mv LICENSE COPYING && git rm -q go.sum && git add -A &&
		git -c user.name=J -c user.email=j@example.org commit -qm "a change" && git status --porcelain`},
	{"git", `git checkout -q -b topic && echo x >topic.txt && git add topic.txt &&
		git -c user.name=J -c user.email=j@example.org commit -qm topic && git checkout -q - && git stash list && git gc -q`},
	{"go", `export GOCACHE=$HOME/.cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off; mkdir gowork && cd gowork &&
		printf 'module example.org/work\n\ngo 1.20\n' >go.mod &&
		printf 'package work\n\nfunc Add(a, b int) int { return a + b }\n' >add.go &&
		printf 'package work\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n' >add_test.go &&
		GO_TEST go build -o work.a .`},
	{"npm", `mkdir web && cd web && printf '{"name":"web","version":"1.0.0","scripts":{"test":"node --test"}}' >package.json &&
		printf 'require("node:test")("adds", () => { require("node:assert").equal(1 + 2, 3) })' >add.test.js &&
		npm test && npm install --offline --no-audit --no-fund`},
	{"cargo", `mkdir -p crate/src && cd crate && printf '[package]\nname = "crate1"\nversion = "0.1.0"\nedition = "2021"\n' >Cargo.toml &&
		printf 'fn main() { println!("built") }\n' >src/main.rs && cargo build -q --offline && target/debug/crate1`},
	{"make", `mkdir c && cd c && for i in 1 2 3 4 5 6 7 8; do echo "int f$i(void) { return $i; }" >f$i.c; done &&
		printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tar rc lib.a $^\n' >Makefile && make -j && rm f1.o && make -j`},
	{"sh", `chmod 700 scripts && ln -s ../README.md docs/link && mkfifo pipe; rm pipe; rm -r rootfs && mkdir rootfs && echo 1 >rootfs/only &&
		mv docs/how-to docs/moved 2>/dev/null || { cp -a docs/how-to docs/moved && rm -r docs/how-to; }; : >empty; printf 'no newline' >tail`},
}

// TestWork: usual work succeeds in an overlay of a real repository, which stays unchanged; applying the changes gives
// exactly the tree that the jobs saw.
func TestWork(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"), sandboxtest.Program("go"), sandboxtest.Program("npm"),
		sandboxtest.Program("cargo"), sandboxtest.Program("make"), sandboxtest.Program("gcc"))
	repo, d := repository(t), serve(t)
	if err := os.RemoveAll(repo); err != nil {
		t.Fatal(err)
	}
	clone(t, repo)
	before := treeOf(t, repo)
	id := d.open(t, "--repo", repo, "--workspace", "overlay", "--disk", "2GiB")
	goTest := "" // it compiles the standard library, which takes half a minute of a processor
	if sandboxtest.Soak() {
		goTest = "go test ./... &&"
	}
	for _, w := range works {
		w.line = strings.Replace(w.line, "GO_TEST", goTest, 1)
		if got := d.exec(t, id, w.line, "--timeout", "10m"); got.code != 0 {
			t.Errorf("%s: exit code %d: %s%s", w.line, got.code, got.stdout, got.stderr)
		}
	}
	if changed := differences(before, treeOf(t, repo)); len(changed) > 0 {
		t.Fatalf("the repository changed: %q", changed)
	}
	seen := d.exec(t, id, "tar cf - .")
	if seen.code != 0 {
		t.Fatal(seen.stderr)
	}
	merged := t.TempDir()
	untar := exec.Command("tar", "xpf", "-", "-C", merged, "--no-same-owner")
	untar.Stdin = strings.NewReader(seen.stdout)
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	if got := corral(t, "changes", "apply", "--supervisor", d.Socket, id); got.code != 0 {
		t.Fatalf("apply: %+v", got)
	}
	if changed := differences(treeOf(t, merged), treeOf(t, repo)); len(changed) > 0 {
		t.Errorf("what was applied is not what was there: %q", changed[:min(len(changed), 20)])
	}
	if got := d.exec(t, id, `git fsck --no-progress && test -z "$(git status --porcelain COPYING README.md)"`); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// clone creates a repository with this project's files and a history of its own.
func clone(t *testing.T, repo string) {
	t.Helper()
	script := `set -e; mkdir "$2"; cd "$1"; tar cf - --exclude=./bin --exclude=./.cache --exclude=./dist --exclude=./.git --exclude=node_modules . | tar xf - -C "$2"; cd "$2"; git init -q
git add -A; git -c user.name=J -c user.email=j@example.org commit -qm first`
	if out, err := exec.Command("sh", "-c", script, "sh", sandboxtest.ModuleRoot(t), repo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// treeOf describes everything below dir, by name.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, what := strings.TrimPrefix(path, dir+"/"), info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tree[name] = fmt.Sprintf("%s %d %x", what, len(content), sha256.Sum256(content))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			tree[name] = what + " " + to
			return err
		default:
			tree[name] = what
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// differences returns the names of files that differ between two trees.
func differences(a, b map[string]string) []string {
	var list []string
	for name, what := range a {
		if b[name] != what {
			list = append(list, fmt.Sprintf("%s: %s, %s", name, what, b[name]))
		}
	}
	for name, what := range b {
		if _, ok := a[name]; !ok {
			list = append(list, fmt.Sprintf("%s: nothing, %s", name, what))
		}
	}
	slices.Sort(list)
	return list
}
