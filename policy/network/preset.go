package network

import "slices"

// A Preset has rules for hosts that belong together.
type Preset struct {
	Name  string
	About string // one line
	Rules []Rule // without presets
	Key   *Key   // how its hosts are told who asks; nil: they are not
}

// A Key says where requests to the API of a preset have its user's key.
type Key struct {
	Header   string
	Format   string // the value of the header, with {} in the key's place
	Variable string // in which programs look for the key
}

// Keyed returns the rules of the preset, with a secret in their requests.
func (p Preset) Keyed(secret string) []Rule {
	rules := slices.Clone(p.Rules)
	for i := range rules {
		rules[i].Secret = secret
	}
	return rules
}

// presets are the hosts that package managers download from, and the APIs of models that agents ask, by the names that jobs and
// configurations use.
//
// Every one of the former serves what anybody published. A job can tell others something by what it requests from
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
		nil,
	},
	{"npm", "packages of npm, pnpm and yarn", []Rule{{Host: "registry.npmjs.org"}}, nil},
	{"pypi", "packages of Python", []Rule{{Host: "pypi.org"}, {Host: "files.pythonhosted.org"}}, nil},
	{"cargo", "crates of Rust", []Rule{{Host: "index.crates.io"}, {Host: "static.crates.io"}}, nil},
	{
		"debian", "packages of Debian",
		[]Rule{
			{Host: "deb.debian.org", Protocol: HTTP},
			{Host: "deb.debian.org"},
			{Host: "security.debian.org", Protocol: HTTP},
			{Host: "security.debian.org"},
		},
		nil,
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
		nil,
	},
	{"anthropic", "the API of Anthropic's models", []Rule{{Host: "api.anthropic.com"}}, &Key{"X-Api-Key", "{}", "ANTHROPIC_API_KEY"}},
	{"openai", "the API of OpenAI's models", []Rule{{Host: "api.openai.com"}}, &Key{"Authorization", "Bearer {}", "OPENAI_API_KEY"}},
	{
		"google-ai", "the API of Google's models, by a key of AI Studio",
		[]Rule{{Host: "generativelanguage.googleapis.com"}},
		&Key{"X-Goog-Api-Key", "{}", "GEMINI_API_KEY"},
	},
	{
		"github-copilot", "the API of GitHub Copilot, and what says who may use it",
		[]Rule{
			{Host: "api.githubcopilot.com"},
			{Host: "api.individual.githubcopilot.com"},
			{Host: "api.business.githubcopilot.com"},
			{Host: "api.enterprise.githubcopilot.com"},
			{Host: "api.github.com", Methods: reading, Paths: []string{"/user", "/copilot_internal/**"}},
		},
		&Key{"Authorization", "Bearer {}", "COPILOT_GITHUB_TOKEN"},
	},
	{
		"openrouter", "the API of OpenRouter",
		[]Rule{{Host: "openrouter.ai", Paths: []string{"/api/**"}}},
		&Key{"Authorization", "Bearer {}", "OPENROUTER_API_KEY"},
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

// PresetNamed returns a preset.
func PresetNamed(name string) (p Preset, known bool) { return presetNamed(name) }

func presetNamed(name string) (Preset, bool) {
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return presets[i], true
}

// PresetNames returns the names of the presets, in the order of Presets.
func PresetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}
