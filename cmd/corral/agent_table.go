package main

// An agent is a program that asks a model what to do, and does it. Everything that it starts is in its jail, too.
type agent struct {
	name string
	// program is what it is called, and places are where its installers put it, below the home directory. PATH comes before them.
	program string
	places  []string
	npm     string // its package
	// api is the preset of the hosts that it asks, which has the key that they want; login are hosts that it needs in addition where
	// it has no key and its user logs in; nil: it is not known to work so.
	api   string
	login []string
	// key is what it has in the variable of the key, as a shell writes it; the whole of it is replaced with the key. Empty: the placeholder.
	key string
	// state are the paths below its home directory that are kept for the next time.
	state []string
	env   []string // variables, NAME=value
	// begin is what a shell runs before it, with its program and arguments in "$@".
	begin string
}

// npm are the places of the programs of npm's packages, if root has not installed them.
var npm = []string{".local/bin", ".npm-global/bin", ".nvm/versions/node/*/bin"}

// agents are the agents that corral knows. Their other requests, for news, statistics and newer versions, are to hosts that they do not
// need, and a program that is read-only cannot be updated: they are told not to ask.
var agents = []agent{
	{
		name: "claude", program: "claude", places: append([]string{".claude/local"}, npm...),
		npm: "@anthropic-ai/claude-code",
		api: "anthropic", login: []string{"claude.ai", "console.anthropic.com", "platform.claude.com"},
		state: []string{".claude", ".claude.json"},
		env:   []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"},
		// It asks whether it may use a key that it does not know, and knows one by its last 20 characters. The placeholder is another one
		// each time, but what is behind it is not.
		key: "$CORRAL_SECRET--placeholder-corral",
		begin: `[ -e ~/.claude.json ] || cat >~/.claude.json <<'END'
{"hasCompletedOnboarding": true, "customApiKeyResponses": {"approved": ["--placeholder-corral"]}}
END`,
	},
	{
		name: "codex", program: "codex", places: npm,
		npm: "@openai/codex",
		api: "openai", login: []string{"auth.openai.com", "chatgpt.com"},
		state: []string{".codex"},
		// Its provider for keys begins with WebSockets, where no placeholder is replaced, and gives up after ten seconds. The jail refuses
		// what its own sandbox needs.
		begin: `program=$1 p=model_providers.corral
shift
set -- -c sandbox_mode=danger-full-access -c analytics.enabled=false -c check_for_update_on_startup=false -c features.plugins=false "$@"
if [ -n "$CORRAL_SECRET" ]; then
	set -- -c model_provider=corral -c $p.name=OpenAI -c $p.base_url=https://api.openai.com/v1 -c $p.wire_api=responses \
		-c $p.env_key=OPENAI_API_KEY "$@"
fi
set -- "$program" "$@"`,
	},
	{
		name: "gemini", program: "gemini", places: npm,
		npm:   "@google/gemini-cli",
		api:   "google-ai",
		state: []string{".gemini"},
		begin: `[ -z "$CORRAL_SECRET" ] || [ -e ~/.gemini/settings.json ] || { mkdir -p ~/.gemini && cat >~/.gemini/settings.json <<'END'
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}}
END
}`,
	},
	{
		name: "opencode", program: "opencode", places: append([]string{".opencode/bin"}, npm...),
		npm:   "opencode-ai",
		api:   "openrouter",
		state: []string{".local/share/opencode", ".local/state/opencode", ".config/opencode"},
		env:   []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
	},
	{
		name: "copilot", program: "copilot", places: npm,
		npm: "@github/copilot",
		api: "github-copilot", login: []string{"github.com"},
		state: []string{".copilot"},
		env:   []string{"COPILOT_AUTO_UPDATE=false"},
		key:   "github_pat_$CORRAL_SECRET", // it takes no token that begins with anything else
	},
}

// agentNames are the names of the table.
func agentNames() (names []string) {
	for _, a := range agents {
		names = append(names, a.name)
	}
	return names
}

// agentNamed returns an agent of the table.
func agentNamed(name string) (agent, bool) {
	for _, a := range agents {
		if a.name == name {
			return a, true
		}
	}
	return agent{}, false
}
