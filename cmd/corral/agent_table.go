package main

// An agent is a program that asks a model what to do, and does it. Everything that it starts is in its jail, too.
type agent struct {
	name string
	// program is what it is called, and places are where its installers put it, below the home directory. PATH comes before them.
	program string
	places  []string
	// api is the preset of the hosts that it asks, which has the key that they want; login are hosts that it needs in addition where
	// it has no key and its user logs in.
	api   string
	login []string
	// state are the paths below its home directory that are kept for the next time.
	state []string
	env   []string // variables, NAME=value
	// begin is what a shell runs before it, with its arguments in "$@".
	begin string
}

// agents are the agents that corral knows.
var agents = []agent{
	{
		name: "claude", program: "claude",
		places: []string{".local/bin", ".claude/local", ".npm-global/bin", ".nvm/versions/node/*/bin"},
		api:    "anthropic", login: []string{"claude.ai", "console.anthropic.com", "platform.claude.com"},
		state: []string{".claude", ".claude.json"},
		// Each of its other requests is to a host that it does not need, and a program that is read-only cannot be updated.
		env: []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"},
		// It asks whether it may use a key that it does not know, and knows one by its last 20 characters. The placeholder is another one
		// each time, but what is behind it is not, and is replaced with it.
		begin: `if [ -n "$CORRAL_SECRET" ]; then export ANTHROPIC_API_KEY="$CORRAL_SECRET--placeholder-corral"; fi
[ -e ~/.claude.json ] || cat >~/.claude.json <<'END'
{"hasCompletedOnboarding": true, "customApiKeyResponses": {"approved": ["--placeholder-corral"]}}
END`,
	},
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
