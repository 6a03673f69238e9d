package runtimes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/lazyregexp"
	"corral/job"
)

// goCache returns the Go build cache of a job. A shared one is where the go command looks by default, so that commands of
// a shell use it, too.
func (c Choice) goCache() string {
	if c.Shared || c.Runtime == "shell" {
		return job.Home + "/.cache/go-build"
	}
	return Dir + "/go-build"
}

// compiles matches scripts that are likely to compile Go. Others do not pay for a cache.
var compiles = lazyregexp.New(`\bgo\s+(?:build|generate|install|run|test|vet)\b|\bmake\b|\bstaticcheck\b|\bgolangci-lint\b`)

// shell runs a script. One that seems to compile Go begins with links to the prebuilt cache, unless an earlier job of the session
// has made them.
func shell(p *plan) {
	if p.cache == "" || !compiles().MatchString(p.source) {
		interpret("code.sh")(p)
		return
	}
	p.file("code.sh", p.source)
	p.shell("[ -e " + p.goCache() + "/trim.txt ] || { " + p.seed() + "}; exec " + quote(p.Path, p.in("code.sh")) + ` "$@"`)
}

// Faster returns what root can do once to make the choice start faster, as a clause that ends with a command, or "".
// Without a prebuilt cache, every job compiles the parts of the standard library that it uses, which takes seconds.
func (c Choice) Faster() string {
	if c.Runtime != "go" || c.cache != "" {
		return ""
	}
	return "compile the standard library once, as root, and again with each version of Go: " + fillCache(c.Path)
}

// fillCache returns a command that fills the first of goCaches. It tests a package that imports everything, because go test also
// keeps what go vet finds out about each package, which go build does not; without that, the first test of a session vets
// 200 packages.
func fillCache(program string) string {
	return "cd $(mktemp -d) && " + program + " mod init example.com/std && (echo package std; " + program +
		` list std | grep -Ev 'internal|vendor' | sed 's/.*/import _ "&"/') >all_test.go && GOCACHE=` + goCaches[0] + " " + program + " test"
}

// withCache finds a prebuilt cache. Jobs execute what is in it, so it must belong to root and be writable for nobody
// else, or lie in a directory that the operator named.
func withCache(s *search, c *Choice) string {
	for _, t := range s.toolchains {
		if isCache(filepath.Join(t, "go-build")) {
			c.cache = filepath.Join(t, "go-build")
			return ""
		}
	}
	for _, dir := range s.caches {
		var st unix.Stat_t
		if isCache(dir) && unix.Lstat(dir, &st) == nil && st.Uid == s.owner && st.Mode&0o022 == 0 {
			c.cache = dir
			return ""
		}
	}
	return ""
}

func isCache(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, "00"))
	return err == nil && info.IsDir()
}

// seed returns the start of a script that fills the job's cache with links to the prebuilt one, which takes about 20 ms.
// The date in trim.txt keeps Go from scanning the cache for old entries.
func (p *plan) seed() string {
	if p.cache == "" {
		return ""
	}
	cache := p.goCache()
	return "mkdir -p " + cache + " && date +%s >" + cache + "/trim.txt && cp -rsn " + quote(p.cache+"/.") + " " + cache +
		" 2>/dev/null; "
}

// overlaid is the name under which the go command sees the code in the working directory. No package there contains it, because of
// its constraint.
const overlaid = "corral-code.go"

// golang builds and then runs the program: `go run` would change its exit code to 1. An overlay puts the code into the working
// directory, and so into the module there, whose internal packages it can import then.
func golang(p *plan) {
	const constraint = "//go:build ignore\n\n//line code.go:1\n"
	source := p.source
	if !strings.Contains(source, "//go:build") {
		source = constraint + source
	}
	p.file("code.go", source)
	p.file("overlay.json", `{"Replace":{"`+overlaid+`":"`+p.in("code.go")+`"}}`)
	build := []string{p.Path, "build", "-overlay", p.in("overlay.json"), "-o", p.in(binary), overlaid}
	p.shell(p.seed() + quote(build...) + " </dev/null >&2 && exec " + quote(p.in(binary)) + ` "$@"`)
}

// goCommand runs the go command with arguments. The job's cache does not exist yet.
func goCommand(p *plan) {
	if p.cache == "" {
		p.exec(slices.Concat([]string{p.Path}, p.args)...)
		return
	}
	p.shell(p.seed() + "exec " + quote(p.Path) + ` "$@"`)
}
