package usage

// Agent is the help text of corral agent.
const Agent = `corral agent runs a coding agent in a jail: the whole agent, with its tools, hooks and servers, on your terminal.

Usage:
  corral agent [OPTIONS] claude|codex|gemini|opencode|copilot [ARG]...   run this agent
  corral agent [OPTIONS] -- PROGRAM [ARG]...                             run any program in its place

  --direct              the agent writes to the repository (default: to an overlay; at the end, corral shows what changed and
                        asks whether to apply it)
  --ephemeral           start without what the agent kept before, and keep nothing
  --key-file FILE       the file of the key of the agent's API (default: the variable in which the agent looks for it, else
                        ~/.config/corral/keys/PRESET: anthropic, openai, google-ai, openrouter, github-copilot). Not with a
                        running supervisor
  --login               use no key, and allow the hosts at which you log in (claude, codex, copilot); the agent keeps what it gets
                        there
  --program PATH        the agent's program (default: in PATH, and where its installers put it)
  --network HOST,...    hosts that it reaches in addition to its API, as in corral run; repeatable
  --repo DIR            the repository (default the current directory)

All other options are those of corral run: limits, --env, --toolchain, --protect. Options come before NAME: all that follows is
the agent's.

The agent sees the repository, the system's programs and its own installation, which is read-only. It reaches its API alone. It has
a placeholder in place of the key, which takes its place on the way, and never enters the jail. What an agent keeps (settings,
conversations, a login) is in ~/.local/state/corral/agents/NAME.tar, and is stored when it ends. Options with which agents ask less
(--dangerously-skip-permissions, --yolo) are fine here.

Its start needs root: sudo --preserve-env=ANTHROPIC_API_KEY corral agent claude. With the service, it needs none: the operator's
configuration says which hosts it reaches, which secrets it has, and which installations it sees (toolchains).

Exit code: the agent's, as in corral run.
`
