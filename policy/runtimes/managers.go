package runtimes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A manager keeps versions of programs in a home directory. Its own programs, the shims, read files that no jail shows,
// so this package finds the version that they would choose.
type manager struct {
	dir string // relative to the home directory
	// versions returns the directories of the versions in use, and passes the paths that it reads to m.watch.
	versions func(m home) []string
}

// A home is a manager's directory while it is searched.
type home struct {
	dir, home string
	watch     func(path string)
}

// managers lists the known version managers and the directories of single tools.
var managers = []manager{
	{".rustup", func(m home) []string {
		_, rest, _ := strings.Cut(m.read("settings.toml"), "default_toolchain = \"")
		name, _, _ := strings.Cut(rest, "\"")
		return m.one("toolchains", name)
	}},
	{".nvm", func(m home) []string { return m.one("versions/node", m.nvmAlias("default", 5)) }},
	{".pyenv", func(m home) []string { return m.one("versions", firstWord(m.read("version"))) }},
	{".rbenv", func(m home) []string { return m.one("versions", firstWord(m.read("version"))) }},
	{".sdkman", func(m home) []string {
		return slices.Concat(m.one("candidates/java", "current"), m.one("candidates/kotlin", "current"))
	}},
	{".asdf", func(m home) []string {
		return m.installs(func(tool string) string { return field(readSmall(m.home, ".tool-versions"), tool) })
	}},
	{".local/share/mise", func(m home) []string {
		return m.installs(func(tool string) string {
			text := readSmall(m.home, ".config/mise/config.toml")
			return strings.Trim(field(strings.ReplaceAll(text, "=", " "), tool), `"'`)
		})
	}},
	{".bun", func(m home) []string { return []string{m.dir} }},
	{".dotnet", func(m home) []string { return []string{m.dir, filepath.Join(m.dir, "tools")} }},
	{"sdk", func(m home) []string { return m.highest(".", "go") }}, // golang.org/dl
}

// managed returns the directories of the versions in use, if dir is the directory of a manager.
func managed(dir string, watch func(string)) []string {
	for _, m := range managers {
		if homeDir, ok := strings.CutSuffix(dir, "/"+m.dir); ok && homeDir != "" {
			return m.in(homeDir, watch)
		}
	}
	return nil
}

// in returns the directories of a manager in a home directory, links resolved.
func (m manager) in(homeDir string, watch func(string)) []string {
	dir := filepath.Join(homeDir, m.dir)
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil
	}
	var list []string
	for _, found := range m.versions(home{dir, homeDir, watch}) {
		watch(found)
		real, err := filepath.EvalSymlinks(found)
		if err != nil || !below(real, dir) {
			continue
		}
		list = append(list, real)
	}
	return list
}

// read returns the content of a small file of the manager.
func (m home) read(name string) string {
	m.watch(filepath.Join(m.dir, name))
	return readSmall(m.dir, name)
}

// one returns the directory of a version in dir. If there is none of that name, it is the highest version that starts
// with it (20 means v20.11.1, stable means stable-x86_64-unknown-linux-gnu).
func (m home) one(dir, version string) []string {
	if !isName(version) {
		return nil
	}
	parent := filepath.Join(m.dir, dir)
	m.watch(parent)
	if _, err := os.Stat(filepath.Join(parent, version)); err == nil {
		return []string{filepath.Join(parent, version)}
	}
	for _, name := range slices.Backward(names(parent)) {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(name, "v"), strings.TrimPrefix(version, "v"))
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '-') {
			return []string{filepath.Join(parent, name)}
		}
	}
	return nil
}

// highest returns the directory of the highest version in dir whose name starts with prefix.
func (m home) highest(dir, prefix string) []string {
	parent := filepath.Join(m.dir, dir)
	m.watch(parent)
	for _, name := range slices.Backward(names(parent)) {
		if strings.HasPrefix(name, prefix) {
			return []string{filepath.Join(parent, name)}
		}
	}
	return nil
}

// installs returns a directory for each tool of asdf or mise: the requested version, or if it is not installed, the
// highest one.
func (m home) installs(version func(tool string) string) []string {
	var list []string
	for _, tool := range []string{
		"node", "nodejs", "bun", "python", "go", "golang", "java", "kotlin", "rust", "ruby", "php", "perl", "r", "R", "erlang", "elixir",
		"dotnet", "dotnet-core",
	} {
		dir := filepath.Join("installs", tool)
		found := m.one(dir, version(tool))
		if found == nil {
			found = m.highest(dir, "")
		}
		list = append(list, found...)
	}
	return list
}

// nvmAlias resolves nvm's aliases, at most hops of them: "default" may be "lts/*", that "lts/iron", and that "v20.11.1".
func (m home) nvmAlias(name string, hops int) string {
	if name == "node" || name == "stable" || hops == 0 {
		if found := m.highest("versions/node", "v"); found != nil {
			return filepath.Base(found[0])
		}
		return ""
	}
	for _, part := range strings.Split(name, "/") {
		if part != "*" && !isName(part) {
			return ""
		}
	}
	next := firstWord(m.read(filepath.Join("alias", name)))
	if next == "" {
		return name
	}
	return m.nvmAlias(next, hops-1)
}

// isName reports whether s is a single path element without control characters that does not start with a dot.
func isName(s string) bool {
	return s != "" && len(s) < 100 && s[0] != '.' && !strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r < 0x20 })
}

func firstWord(s string) string {
	if words := strings.Fields(s); len(words) > 0 {
		return words[0]
	}
	return ""
}

// field returns the second word of the first line whose first word is name.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			return words[1]
		}
	}
	return ""
}

// isShim reports whether a program only starts another one: rustup's proxies, which are links to rustup, and the scripts
// of pyenv, rbenv and asdf.
func isShim(real string, info os.FileInfo) bool {
	dir, name := filepath.Split(real)
	if name == "rustup" || filepath.Base(dir) == "shims" {
		return true
	}
	rustup, err := os.Stat(filepath.Join(dir, "rustup"))
	return err == nil && os.SameFile(info, rustup)
}
