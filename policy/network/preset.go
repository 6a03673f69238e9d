package network

import "slices"

// A Preset has rules for hosts that belong together.
type Preset struct {
	Name  string
	About string // one line
	Rules []Rule // without presets
}

// presets are the hosts that package managers download from, by the names that jobs and configurations use.
//
// Every one of these services serves what anybody published. A job can tell others something by what it requests from
// them, so a preset is not for a job that must not leak what it reads.
var presets = []Preset{
	{
		"go", "modules and toolchains of Go",
		[]Rule{
			{Host: "proxy.golang.org"},
			{Host: "sum.golang.org"},
			// proxy.golang.org redirects to storage.googleapis.com for large archives (golang.org/issue/52908), where everybody
			// can have data. An operator who needs such a module adds that host.
		},
	},
	{"npm", "packages of npm, pnpm and yarn", []Rule{{Host: "registry.npmjs.org"}}},
	{"pypi", "packages of Python", []Rule{{Host: "pypi.org"}, {Host: "files.pythonhosted.org"}}},
	{"cargo", "crates of Rust", []Rule{{Host: "index.crates.io"}, {Host: "static.crates.io"}}},
	{
		"debian", "packages of Debian",
		[]Rule{
			{Host: "deb.debian.org", Protocol: HTTP},
			{Host: "deb.debian.org"},
			{Host: "security.debian.org", Protocol: HTTP},
			{Host: "security.debian.org"},
		},
	},
	{
		"github-read", "what GitHub shows: clones, files, releases, its API; nothing is sent but what a request to read has",
		[]Rule{
			{Host: "github.com", Methods: reading},
			// git-upload-pack is what a clone or fetch posts to (gitprotocol-http(5)).
			{Host: "github.com", Methods: []string{"POST"}, Paths: []string{"/*/*/git-upload-pack"}},
			{Host: "api.github.com", Methods: reading},
			{Host: "codeload.github.com", Methods: reading},
			{Host: "raw.githubusercontent.com", Methods: reading},
			{Host: "objects.githubusercontent.com", Methods: reading},
			{Host: "release-assets.githubusercontent.com", Methods: reading},
		},
	},
}

// reading are the methods of requests that change nothing.
var reading = []string{"GET", "HEAD"}

// Presets returns the presets in the order of the documentation.
func Presets() []Preset {
	list := slices.Clone(presets)
	for i := range list {
		list[i].Rules = slices.Clone(list[i].Rules)
	}
	return list
}

func presetNamed(name string) (Preset, bool) {
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return presets[i], true
}

func presetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}
