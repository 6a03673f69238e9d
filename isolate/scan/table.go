package scan

import (
	"slices"
	"strings"
)

// Place is where a rule's path starts.
type Place uint8

// The places.
const (
	Tree   Place = iota // in any directory of the repository
	GitDir              // in any git directory, look-alikes included
	Bare                // in a look-alike only: a directory not named .git which git takes for a bare repository
)

// A Rule names one kind of sensitive path.
type Rule struct {
	In Place
	// Path is in lower case. With a trailing slash it means the directory and everything below it; without one, a file;
	// with a leading asterisk each file, in whatever directory, whose name ends with the rest, which is an extension.
	// Each directory on the way is reported if another file, such as a link, replaces it.
	Path string
	// Why is the effect that the path has on the host.
	Why string
}

// Table lists what is sensitive, see kinds.
var Table = expand(kinds)

// A kind is the rules for paths that have the same effect.
type kind struct {
	in  Place
	why string // see Rule.Why
	// paths are separated by white space. A word a{b,c} stands for ab and ac.
	paths string
}

// kinds list what is sensitive. Files that jobs legitimately write and that nothing runs later by itself (sources, build
// files, git's objects, references and logs) are left out, or each report would be noise. Linters, editors and shells
// that read code from a project's configuration without asking are in it; compilers and test runners, which run the
// project's code anyway, are not.
var kinds = []kind{
	{Tree, "git takes its configuration and hooks from where it is or, if a file, from where it points", ".git"},
	{GitDir, "git runs them; *.sample, which it does not, is left out", "hooks/"},
	{GitDir, "core.fsmonitor, core.pager, core.hooksPath, aliases, filters and textconv run commands", "config"},
	{GitDir, "read like config", "config.worktree"},
	{GitDir, "where a worktree's configuration and hooks are", "commondir"},
	{GitDir, "where a worktree's checkout is", "gitdir"},
	{GitDir, "applies filters, diff and merge drivers that the user has configured", "info/attributes"},
	{GitDir, "hides new files from git status", "info/exclude"},
	{GitDir, "files that git status leaves out (skip-worktree)", "info/sparse-checkout"},
	{GitDir, "shows commits with other parents", "info/grafts"},
	{GitDir, "where history ends", "shallow"},
	{GitDir, "git shows other objects than those that were committed", "refs/replace/"},
	{GitDir, "brings in objects of another repository", "objects/info/alternates"},
	{GitDir, "brings in objects of another server", "objects/info/http-alternates"},
	{GitDir, "its exec lines run at git rebase --continue", "rebase-merge/git-rebase-todo"},
	{GitDir, "old form of remotes: where fetch and push go", "remotes/"},
	{GitDir, "older form of remotes", "branches/"},
	{Bare, "makes the directory a repository whose configuration and hooks git uses for anyone who works in it", "head"},
	{Tree, "applies filters, diff and merge drivers that the user has configured", ".gitattributes"},
	{Tree, "where submodules come from, and how they are updated", ".gitmodules"},
	{Tree, "git configuration, by include or as a home directory's", ".gitconfig"},
	{Tree, "where git-lfs fetches from", ".lfsconfig"},
	{Tree, "usual value of core.hooksPath", ".githooks/"},
	{Tree, "Mercurial runs its hooks and extensions", ".hg/hgrc .hg/hgrc-not-shared"},
	{Tree, "Sapling runs its hooks and extensions", ".sl/config"},
	{Tree, "Jujutsu runs its tools and aliases", ".jj/repo/config.toml .jj/workspace-config.toml"},
	{Tree, "libraries that arcanist loads", ".arcconfig"},
	{Tree, "scripts that arcanist runs", ".arclint"},

	{Tree, "agent's settings, hooks, commands and permissions", ".claude/"},
	{Tree, "agent's settings and MCP servers", ".claude.json .gemini/ .qwen/ opencode.json opencode.jsonc .crush.json crush.json"},
	{Tree, "agent's plugins: commands, hooks and MCP servers", ".claude-plugin/"},
	{Tree, "instructions that an agent obeys: prompt injection", "claude.md"},
	{
		Tree, "instructions that an agent obeys",
		`claude.local.md agents.md agents.override.md agent.md gemini.md warp.md qwen.md crush.md grok.md replit.md .rules
		.continuerules .augment-guidelines .cursorrules .windsurfrules .clinerules/ .goosehints
		.github/copilot-instructions.md .github/instructions/ .github/prompts/ .github/chatmodes/`,
	},
	{Tree, "agent's skills and instructions", ".agents/ .agent/"},
	{Tree, "agent's settings, rules and MCP servers", ".codex/ .continue/"},
	{Tree, "settings of AWS clients: credential_process runs a program", ".aws/"},
	{Tree, "agent's rules, hooks and MCP servers", ".cursor/"},
	{
		Tree, "agent's settings, rules, commands and MCP servers",
		`.trae/ .augment/ .factory/ .kilocode/ .goose/ .openhands/ .amp/ .crush/ .qodo/ .tabnine/ .codebuddy/ .zencoder/
		.firebender/ .grok/ .ruler/ .rulesync/ .aiassistant/ .void/ .mcp/`,
	},
	{Tree, "agent's rules and workflows", ".windsurf/"},
	{Tree, "agent's rules and MCP servers", ".roo/ .amazonq/ firebender.json .gitlab/duo/"},
	{Tree, "agent's modes and what each may do", ".roomodes .kilocodemodes"},
	{Tree, "agent's hooks, rules and MCP servers", ".kiro/"},
	{Tree, "agent's instructions and MCP servers", ".junie/"},
	{Tree, "agent's plugins and commands", ".opencode/"},
	{Tree, "agent's settings: commands for tests and lint", ".aider.conf.yml"},
	{Tree, "agent's settings", ".aider.model.settings.yml"},
	{Tree, "MCP servers: commands that clients start", ".mcp.json mcp.json"},
	{Tree, "agent's definitions and tools", ".github/agents/"},
	{Tree, "instructions and scripts of an agent", ".github/skills/"},
	{Tree, "commands that an agent runs", ".github/hooks/"},

	{Tree, "editor's tasks, launch commands, settings and MCP servers", ".vscode/"},
	{Tree, "editor's run configurations, external tools and file watchers; workspace.xml holds some of them", ".idea/"},
	{Tree, "editor's tasks and settings", ".zed/ .nova/"},
	{Tree, "editor's run configurations", ".fleet/"},
	{Tree, "commands run, and mounts made, when the container is built or opened", ".devcontainer/"},
	{Tree, "the same in one file", ".devcontainer.json"},
	{Tree, "an editor's tasks, launch commands and settings", "*.code-workspace"},
	{Tree, "an editor's build systems and settings", "*.sublime-project"},
	{Tree, "Visual Studio's tasks and launch commands", ".vs/"},
	{Tree, "editor's tasks, launch commands and settings", ".theia/"},
	{Tree, "editor's settings and run configurations", ".lapce/"},
	{Tree, "Eclipse's settings, launch commands among them", ".settings/"},
	{Tree, "Eclipse's builders, external programs among them", ".project"},
	{Tree, "external programs that Eclipse runs as builders", ".externaltoolbuilders/"},
	{Tree, "NetBeans' project, with the commands it runs", "nbproject/"},
	{Tree, "commands by which editors start a build server", ".bsp/"},
	{Tree, "commands of helix's language servers and formatters", ".helix/languages.toml"},
	{Tree, "helix's commands for keys", ".helix/config.toml"},
	{Tree, "read by vim and its plugins, with exrc or a local configuration", ".vim/"},
	{Tree, "read by neovim and its plugins, with exrc or a local configuration", ".nvim/"},
	{Tree, "commands of vim's debugger", ".vimspector.json"},
	{Tree, "settings of neovim's language servers", ".neoconf.json"},
	{Tree, "code that YouCompleteMe loads", ".ycm_extra_conf.py"},
	{Tree, "commands that run when the workspace is opened", ".idx/ .replit .gitpod.yml .codesandbox/"},
	{Tree, "read by vim with exrc", ".vimrc .exrc"},
	{Tree, "read by neovim with exrc", ".nvimrc .nvim.lua"},
	{Tree, "read by vim's localvimrc", ".lvimrc"},
	{Tree, "read by emacs on each visit of a file", ".dir-locals.el .dir-locals-2.el"},
	{Tree, "plugins of Lua's language server, which are code", ".luarc.json .luarc.jsonc"},
	{Tree, "commands of Rust's language server", "rust-analyzer.toml .rust-analyzer.toml"},
	{Tree, "plugins of C#'s language server", "omnisharp.json"},
	{Tree, "programs that Haskell's language server runs", "hie.yaml"},
	{Tree, "plugins of Ruby's language server", ".solargraph.yml"},
	{Tree, "commands that the debugger runs", ".gdbinit .lldbinit .gdbearlyinit"},
	{Tree, "commands that Python's debugger runs", ".pdbrc"},
	{Tree, "code that Perl's debugger runs", ".perldb"},
	{Tree, "commands that Ruby's debugger runs", ".byebugrc .rdbgrc"},
	{Tree, "code and data that R loads when it starts in the directory", ".rprofile .rdata"},
	{Tree, "the environment of R that starts in the directory", ".renviron"},
	{Tree, "code that .Rprofile of a project with renv runs", "renv/activate.r"},
	{Tree, "commands that ghci runs when it starts in the directory", ".ghci"},
	{Tree, "code that irb runs when it starts in the directory", ".irbrc"},
	{Tree, "code that pry runs when it starts in the directory", ".pryrc"},
	{Tree, "code that Octave runs when it starts in the directory", ".octaverc"},
	{Tree, "code that ocaml runs when it starts in the directory", ".ocamlinit"},
	{Tree, "code that erl runs when it starts in the directory", ".erlang"},
	{Tree, "code that iex runs when it starts in the directory", ".iex.exs"},
	{Tree, "code that latexmk runs", ".latexmkrc latexmkrc"},
	{Tree, "code that IPython runs when it starts in the directory", "ipython_config.py"},
	{Tree, "init-hook and plugins: code that an editor has pylint run", ".pylintrc pylintrc"},
	{Tree, "plugins of the project: code that an editor has flake8 run", ".flake8"},
	{Tree, "plugins: code that an editor has mypy and other linters of Python load", "{,.}mypy.ini setup.cfg tox.ini pyproject.toml"},
	{Tree, "code that an editor has luacheck run", ".luacheckrc"},
	{Tree, "code that an editor has mix format run", ".formatter.exs"},
	{Tree, "files that an editor has PHPStan and Psalm run first", "phpstan.neon{,.dist} psalm.xml{,.dist}"},
	{Tree, "code that RuboCop loads", ".rubocop.yml"},
	{Tree, "options of RSpec: code that it loads", ".rspec"},
	{Tree, "options of YARD: code that it loads", ".yardopts"},
	{Tree, "code that SimpleCov runs", ".simplecov"},
	{Tree, "options of prove: programs that it runs", ".proverc"},
	{Tree, "options of an editor's perlcritic", ".perlcriticrc"},
	{Tree, "code that an editor has php-cs-fixer run", ".php-cs-fixer{,.dist}.php"},
	{Tree, "settings of PHP for the directory: files that are run before each script", ".user.ini"},
	{Tree, "settings of a web server for the directory", ".htaccess"},
	{
		Tree, "code that an editor's extension for the tool runs",
		"{vite,vitest,jest,playwright,tailwind,postcss,svelte,astro,babel,unocss}.config.{js,ts,cjs,mjs,cts,mts}",
	},
	{
		Tree, "plugins and parsers: code that an editor has ESLint load",
		`.eslintrc{,.js,.cjs,.json,.yml,.yaml} eslint.config.{js,mjs,cjs,ts,mts}`,
	},
	{
		Tree, "plugins: code that an editor has Prettier load",
		`.prettierrc{,.js,.cjs,.mjs,.json,.yml,.yaml,.toml} prettier.config.{js,cjs,mjs,ts}`,
	},
	{
		Tree, "plugins: code that an editor has Stylelint load",
		`.stylelintrc{,.js,.cjs,.mjs,.json,.yml,.yaml} stylelint.config.{js,cjs,mjs}`,
	},

	{Tree, "direnv, or a plugin of the shell, reads it on entering the directory", ".envrc .envrc.local .env .env.local"},
	{Tree, "cached environments which direnv's layouts source without asking again", ".direnv/"},
	{
		Tree, "hooks, tasks and environment on entering the directory",
		`{,.}mise{,.local}.toml mise/config.toml .mise/ .config/mise.toml .config/mise/ .rtx.toml`,
	},
	{Tree, "which programs asdf and mise start, by a path if it says so", ".tool-versions"},
	{Tree, "rvm runs it on entering the directory", ".rvmrc"},
	{Tree, "which programs sdkman puts into the path on entering the directory", ".sdkmanrc"},
	{Tree, "which compiler rustup starts, by a path if it says so", "rust-toolchain.toml rust-toolchain"},
	{Tree, "environment on entering the directory", ".shadowenv.d/"},
	{Tree, "commands on entering the directory", ".autoenv .autoenv.zsh"},
	{Tree, "environment and hooks on entering the directory", ".flox/"},
	{Tree, "hooks when the environment is entered", "devbox.json"},
	{
		Tree, "hooks and environment that direnv or a plugin of the shell enters",
		"flake.nix shell.nix devenv{,.local}.{nix,yaml}",
	},
	{
		Tree, "the interpreter that editors and shells start, and what it runs first",
		"{,.}venv/{pyvenv.cfg,bin/activate,bin/python,bin/python3}",
	},
	{Tree, "the shell runs it in builds of React Native", ".xcode.env .xcode.env.local"},
	{
		Tree, "the shell runs it, if the directory is a home",
		`.bashrc .bash_profile .bash_login .profile .zshrc .zprofile .zlogin .bash_logout .bash_aliases`,
	},
	{Tree, "the shell runs it, if the directory is a home or ZDOTDIR", ".zshenv"},
	{Tree, "keys that may log in and commands that ssh runs, if the directory is a home", ".ssh/"},

	{Tree, "git hooks that live in the tree", ".husky/"},
	{Tree, "what the installed git hook downloads and runs", ".pre-commit-config.yaml"},
	{Tree, "what others' git hooks run from this repository", ".pre-commit-hooks.yaml"},
	{
		Tree, "what the installed git hook runs",
		`lefthook{,-local}.{yml,yaml,toml} .lefthook{,-local}.yml .config/lefthook.yml .overcommit.yml captainhook.json grumphp.yml
		hk.pkl prek.toml .simple-git-hooks.{json,js,cjs} .lintstagedrc{,.json,.yml,.yaml,.js,.cjs,.mjs}
		lint-staged.config.{js,cjs,mjs} .commitlintrc.{js,cjs} commitlint.config.{js,cjs,mjs} .gitlint`,
	},
	{Tree, "scripts of the installed git hook", ".lefthook/ .lefthook-local/"},

	{Tree, "registry, script shell and node options of npm", ".npmrc"},
	{Tree, "registry of yarn, and the program that stands for it (yarn-path)", ".yarnrc"},
	{Tree, "registry and plugins of yarn, and the program that stands for it (yarnPath)", ".yarnrc.yml"},
	{Tree, "the program that stands for yarn", ".yarn/releases/"},
	{Tree, "code that yarn loads", ".yarn/plugins/"},
	{Tree, "code that an editor runs in place of the language servers", ".yarn/sdks/"},
	{Tree, "code that is loaded into each node that yarn starts", ".pnp.cjs .pnp.loader.mjs"},
	{Tree, "code that pnpm loads", ".pnpmfile.cjs .pnpmfile.mjs"},
	{Tree, "settings of pnpm, and whose install scripts run", "pnpm-workspace.yaml"},
	{Tree, "registry and preloaded code of bun", "bunfig.toml"},
	{Tree, "linkers, runners and wrappers that cargo starts", ".cargo/config .cargo/config.toml"},
	{Tree, "options of each bazel command, strategies and wrappers among them", ".bazelrc"},
	{Tree, "which bazel is downloaded, and from where", ".bazeliskrc"},
	{Tree, "the program that stands for bazel", "tools/bazel"},
	{Tree, "programs that buck starts", ".buckconfig .buckconfig.local"},
	{Tree, "the program that stands for gradle, and where it is downloaded from", "gradle/wrapper/"},
	{Tree, "JVM and options of gradle, which editors start", "gradle.properties"},
	{Tree, "options of sbt and its JVM, which editors start", ".sbtopts"},
	{Tree, "options of the JVM that sbt and mill start in", ".jvmopts"},
	{Tree, "options of the JVM that mill starts in", ".mill-jvm-opts"},
	{Tree, "what MSBuild runs in each project below, and editors have it run", "directory.build.props directory.build.targets"},
	{Tree, "options of MSBuild", "directory.build.rsp"},
	{Tree, "where NuGet fetches code from", "nuget.config"},
	{Tree, "programs that dotnet tool restore installs", ".config/dotnet-tools.json"},
	{Tree, "where Swift fetches code from", ".swiftpm/configuration/"},
	{Tree, "programs that terraform runs as providers", ".terraform/"},
	{Tree, "where terraform finds its providers", ".terraformrc"},
	{Tree, "plugins that ansible loads", "ansible.cfg"},
	{Tree, "extensions and JVM options of maven", ".mvn/"},
	{Tree, "where bundler finds and puts code", ".bundle/config"},
	{Tree, "index from which pip installs, if PIP_CONFIG_FILE or a virtual environment names it", "pip.conf"},
	{Tree, "index and interpreter of uv", "uv.toml"},
	{Tree, "what docker compose adds to the project's file without asking", "{compose,docker-compose}.override.{yml,yaml}"},

	{
		Tree, "runs with the project's secrets once it is pushed",
		`.github/workflows/ .github/actions/ .gitlab-ci.yml .circleci/ .gitlab-ci.yaml .travis.yml jenkinsfile
		azure-pipelines.yml azure-pipelines.yaml .azure-pipelines/ .drone.yml .drone.star .woodpecker.yml .woodpecker.yaml
		.woodpecker/ .buildkite/ .forgejo/ .gitea/workflows/ bitbucket-pipelines.yml .appveyor.yml appveyor.yml .cirrus.yml
		.cirrus.star .semaphore/ .tekton/ .teamcity/ .build.yml .builds/ cloudbuild.yaml cloudbuild.yml buildspec.yml
		buildspec.yaml .screwdriver.yaml screwdriver.yaml wercker.yml`,
	},
}

// expand returns a rule for each path.
func expand(kinds []kind) (table []Rule) {
	for _, k := range kinds {
		for _, word := range strings.Fields(k.paths) {
			for _, path := range alternatives(word) {
				table = append(table, Rule{k.in, path, k.why})
			}
		}
	}
	return table
}

// alternatives returns what a word with braces stands for.
func alternatives(word string) (list []string) {
	before, rest, braces := strings.Cut(word, "{")
	if !braces {
		return []string{word}
	}
	inner, after, _ := strings.Cut(rest, "}")
	for _, end := range alternatives(after) {
		for option := range strings.SplitSeq(inner, ",") {
			list = append(list, before+option+end)
		}
	}
	return list
}

// hiding contains the rows of files that do not make git run anything, but make it show something other than what exists.
var hiding = rowsOf(GitDir, "info/exclude", "info/sparse-checkout", "info/grafts", "shallow", "refs/replace/")

// rowsOf returns the rows of these paths.
func rowsOf(in Place, paths ...string) map[int16]bool {
	rows := map[int16]bool{}
	for i, r := range Table {
		if r.In == in && slices.Contains(paths, r.Path) {
			rows[int16(i)] = true
		}
	}
	return rows
}
