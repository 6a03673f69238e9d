package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/example"
	"corral/internal/test/sandboxtest"
)

// A cachePlace is a place with the home directory of the repository's owner, closed to others.
type cachePlace struct {
	*place
	home string
}

func newCachePlace(t *testing.T) cachePlace {
	t.Helper()
	p := cachePlace{place: newPlace(t)}
	p.home = filepath.Join(p.dir, "home")
	makeDir(t, p.home, p.uid, 0o700)
	return p
}

// asOwner runs a program on the host as the repository's owner, in the repository.
func (p cachePlace) asOwner(t *testing.T, env []string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p.repo, append([]string{"HOME=" + p.home, "PATH=/usr/local/go/bin:/usr/bin:/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v, %s", argv, err, out)
	}
}

// serve starts a supervisor and a server that show a directory as a toolchain.
func (p cachePlace) serve(t *testing.T, dir string) *host {
	t.Helper()
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true, Args: []string{"--toolchain", dir}})
	config := p.config(t, "toolchains: ["+dir+"]\n")
	return connect(t, p.usual("mcp", "--config", config, "--supervisor", d.Socket, "--tools", "agent"))
}

// newGoCachePlace creates a place whose repository needs a module, which is in the owner's cache, and in the directory proxy of the place.
func newGoCachePlace(t *testing.T) cachePlace {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("go"))
	p := newCachePlace(t)
	proxy := filepath.Join(p.dir, "proxy/example.com/greet/@v")
	if err := os.MkdirAll(proxy, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	put := func(name, text string) {
		w, err := z.Create("example.com/greet@v1.2.0/" + name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const mod = "module example.com/greet\n\ngo 1.20\n"
	put("go.mod", mod)
	put("greet.go", "package greet\n\nconst Word = \"from the cache\"\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": "v1.2.0\n", "v1.2.0.info": `{"Version":"v1.2.0","Time":"2026-01-02T03:04:05Z"}`, "v1.2.0.mod": mod, "v1.2.0.zip": archive.String(),
	} {
		if err := os.WriteFile(filepath.Join(proxy, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.file(t, "go.mod", "module example.com/app\n\ngo 1.20\n\nrequire example.com/greet v1.2.0\n")
	// The message of the compiler says what it has read. A program that printed it would need the runtime, which takes seconds to compile.
	p.file(t, "app.go", "package app\n\nimport \"example.com/greet\"\n\nconst number int = greet.Word\n")
	p.asOwner(t, []string{"GOPROXY=file://" + filepath.Join(p.dir, "proxy"), "GOSUMDB=off", "GOFLAGS=-mod=mod"}, "go", "mod", "tidy")
	return p
}

// TestGoModuleCache checks that jobs use a module of the owner's cache without a network, in each tool, that they see
// nothing else of the cache, such as the settings of clones, and cannot change it.
func TestGoModuleCache(t *testing.T) {
	p := newGoCachePlace(t)
	secret := filepath.Join(p.home, "go/pkg/mod/cache/vcs/clone/config")
	makeDir(t, filepath.Dir(secret), p.uid, 0o755)
	err := errors.Join(os.RemoveAll(filepath.Join(p.dir, "proxy")), os.WriteFile(secret, []byte("url = https://ada:hunter2@example.com\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(p.home, "go/pkg/mod/cache/download")
	h := p.serve(t, cache)
	code := "go build ./... 2>&1; cat " + secret + " 2>/dev/null; ls " + p.home + "/go/pkg/mod/cache; touch " + cache + "/x 2>/dev/null || echo cannot write"
	for tool, key := range map[string]string{"run": "code", "ctx_execute": "code"} {
		got := h.agentCall(tool, object{key: code, "language": "shell", "timeout": 100_000})
		if !strings.Contains(got, "from the cache\") as int") || !strings.Contains(got, "\ndownload\n") ||
			!strings.Contains(got, "cannot write") || strings.Contains(got, "hunter2") || strings.Contains(got, "vcs\n") {
			t.Errorf("%s: %s", tool, got)
		}
	}
	if got := h.run("GOFLAGS=-mod=mod go get example.com/absent 2>&1"); !strings.Contains(got, "GOPROXY=off") {
		t.Errorf("a module that the cache lacks: %s", got)
	}
}

// TestCommandsWithModuleCache runs the commands of the page about a working day that use the owner's cache, as the owner. The compiler's
// message is the sign that they came as far as the module.
func TestCommandsWithModuleCache(t *testing.T) {
	p := newGoCachePlace(t)
	listings, err := example.Listings(filepath.Join(sandboxtest.ModuleRoot(t), "docs/how-to/a-working-day.md"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, l := range listings {
		if l.How == example.Tested && l.What == t.Name() {
			commands = strings.Split(strings.TrimPrefix(strings.TrimSpace(l.Text), "$ "), "\n$ ")
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the page has %q", commands)
	}
	if err := sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), filepath.Join(p.dir, "corral")); err != nil {
		t.Fatal(err)
	}
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true, Args: []string{"--toolchain", filepath.Join(p.home, "go/pkg/mod/cache/download")}})
	env := []string{"HOME=" + p.home, "PATH=/usr/local/go/bin:/usr/bin:/bin", "GOPROXY=file://" + filepath.Join(p.dir, "proxy"), "GOSUMDB=off"}
	script := fmt.Sprintf("set -e\n%[1]s session open --supervisor %[2]s --name day --workspace overlay\n"+
		`corral() { of=$1 what=$2 id=$3; shift 3; %[1]s "$of" "$what" "$id" --supervisor %[2]s "$@"; }`+"\n%[3]s\n",
		filepath.Join(p.dir, "corral"), d.Socket, strings.Join(commands, "\n"))
	if code, out := p.as(t, env, "bash", "-c", script); code != 1 || !strings.Contains(out, "from the cache\") as int") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestNpmCache checks that npm installs a package of the owner's cache without a network, and sees none of npm's settings.
func TestNpmCache(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("npm"))
	p := newCachePlace(t)
	archive := packed(t, [][2]string{
		{"package/package.json", `{"name":"greet","version":"1.2.0","main":"greet.js"}`}, {"package/greet.js", "module.exports = 'from the cache'\n"},
	})
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }))
	url := registry.URL + "/greet/-/greet-1.2.0.tgz"
	p.asOwner(t, nil, "npm", "cache", "add", url)
	registry.Close()
	sum := sha512.Sum512(archive)
	p.file(t, "package.json", `{"name":"app","version":"1.0.0","dependencies":{"greet":"1.2.0"}}`)
	p.file(t, "package-lock.json", fmt.Sprintf(`{"name":"app","version":"1.0.0","lockfileVersion":3,"packages":{
		"":{"name":"app","version":"1.0.0","dependencies":{"greet":"1.2.0"}},
		"node_modules/greet":{"version":"1.2.0","resolved":%q,"integrity":"sha512-%s"}}}`,
		url, base64.StdEncoding.EncodeToString(sum[:])))

	if err := os.WriteFile(filepath.Join(p.home, ".npmrc"), []byte("//registry/:_authToken=hunter2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := p.serve(t, filepath.Join(p.home, ".npm/_cacache"))
	got := h.agentCall("run", object{"code": "npm ci 2>&1 && node -p 'require(\"greet\")'; ls -A " + p.home + " " + p.home + "/.npm", "timeout": 100_000})
	if !strings.Contains(got, "\nfrom the cache\n") || strings.Contains(got, "npmrc") || strings.Contains(got, "_logs") {
		t.Error(got)
	}
}

// TestCargoRegistry checks that cargo builds with a crate of the owner's registry without a network, whether or not it has to
// resolve versions, installs programs, and sees none of cargo's credentials.
func TestCargoRegistry(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("cargo"))
	p := newCachePlace(t)
	crate := packed(t, [][2]string{
		{"greet-1.2.0/Cargo.toml", "[package]\nname = \"greet\"\nversion = \"1.2.0\"\n"},
		{"greet-1.2.0/src/lib.rs", "pub const WORD: &str = \"from the cache\";\n"},
	})
	files := map[string]string{
		"/dl":          string(crate),
		"/gr/ee/greet": fmt.Sprintf(`{"name":"greet","vers":"1.2.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate)),
	}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(files[r.URL.Path])) }))
	files["/config.json"] = `{"dl":"` + registry.URL + `/dl?{crate}"}`
	p.file(t, "Cargo.toml", "[package]\nname = \"app\"\nversion = \"1.0.0\"\n\n[dependencies]\ngreet = \"1.2.0\"\n")
	p.file(t, "src/main.rs", "fn main() { println!(\"{}\", greet::WORD) }\n")
	// A sparse index is an unstable feature of cargo before 1.68.
	p.file(t, ".cargo/config.toml", "[unstable]\nsparse-registry = true\n"+
		"[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+"+registry.URL+"/\"\n")

	p.asOwner(t, []string{"RUSTC_BOOTSTRAP=1"}, "env", "cargo", "fetch") // the one in /usr/bin, as in jails
	registry.Close()
	cargo := filepath.Join(p.home, ".cargo")
	if err := os.WriteFile(filepath.Join(cargo, "credentials.toml"), []byte("token = \"hunter2\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := p.serve(t, filepath.Join(cargo, "registry"))
	got := h.agentCall("run", object{
		"code": "export RUSTC_BOOTSTRAP=1; cargo run --locked 2>&1; rm Cargo.lock; cargo install --path . 2>&1; ~/.cargo/bin/app; ls -A " + cargo +
			"; cat " + cargo + "/credentials.toml; touch " + cargo + "/registry/x || echo cannot write",
		"timeout": 100_000,
	})
	if strings.Count(got, "from the cache\n") != 2 || !strings.Contains(got, "\nregistry\n") || !strings.Contains(got, "cannot write") || strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// TestWheelhouse checks that pip installs a wheel of the owner's wheelhouse without a network.
func TestWheelhouse(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("pip3"))
	p := newCachePlace(t)
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, f := range [][2]string{
		{"greet.py", "WORD = 'from the cache'\n"},
		{"greet-1.2.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.2.0\n"},
		{"greet-1.2.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greet-1.2.0.dist-info/RECORD", "greet.py,,\ngreet-1.2.0.dist-info/METADATA,,\ngreet-1.2.0.dist-info/WHEEL,,\ngreet-1.2.0.dist-info/RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	wheels := filepath.Join(p.home, ".cache/wheelhouse")
	makeDir(t, wheels, p.uid, 0o755)
	makeDir(t, filepath.Join(p.home, ".cache/pip/http"), p.uid, 0o755)
	if err := errors.Join(z.Close(), os.WriteFile(filepath.Join(wheels, "greet-1.2.0-py3-none-any.whl"), wheel.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	h := p.serve(t, wheels)
	got := h.agentCall("run", object{
		"code":    "pip3 install greet==1.2.0 2>&1 && python3 -c 'import greet; print(greet.WORD)'; ls -A " + p.home + "/.cache; pip3 install absent 2>&1",
		"timeout": 100_000,
	})
	if !strings.Contains(got, "\nfrom the cache\n") || !strings.Contains(got, "\nwheelhouse\n") || strings.Contains(got, "\npip\n") ||
		!strings.Contains(got, "No matching distribution found for absent") {
		t.Error(got)
	}
}

// packed returns a compressed archive of files with these names and contents.
func packed(t *testing.T, files [][2]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1])), Typeflag: tar.TypeReg})
		if _, bad := w.Write([]byte(f[1])); err != nil || bad != nil {
			t.Fatal(err, bad)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}
