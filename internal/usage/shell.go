package usage

// Shell is the help text of corral shell.
const Shell = `corral shell takes the place of an agent's shell: it runs one text with bash in a jail of the agent's repository.

Usage:
  corral shell TEXT         run a text, as Claude Code calls the program in CLAUDE_CODE_SHELL_PREFIX
  corral shell -c TEXT      run a text, as opencode calls the program in "shell"

The agent's settings name the program corral-shell, a link to corral. Its options are in /etc/corral/shell.conf and
~/.config/corral/shell.conf: on each line an option of corral run with its value, and

  --share                   run all commands of one conversation in one session: they share /tmp and the home directory, and reach
                            each other's servers. So it is with --workspace overlay

The job works in the repository of git that the agent was started in, or else that of the working directory. Its environment has
TERM, LANG, CLAUDECODE, GIT_EDITOR, CLAUDE_CODE_SESSION_ID and CLAUDE_PROJECT_DIR of the agent's, and what --env-pass names. Unless the
files have others, the options are --protect hooks --kill-after 0.5s. Of a command of Claude Code's tool Bash, the job has the functions and aliases of your
shell, and Claude Code learns in which directory it ended. Hooks and MCP servers run in jails of their own.

A signal, and the end of the agent, end the job. There is no time limit but the operator's.

Exit code: the job's, as in corral run; 126 if there is no repository; 125 if corral itself failed, or 2 if that
is a hook that Claude Code asks before it uses a tool.
`
