package commandline_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/front/commands"
	"corral/internal/commandline"
	"corral/internal/test/sandboxtest"
)

// place writes a script of corral to a file called name, in a directory with a file and a directory of its own, which is
// where the shells run.
func place(t *testing.T, name string, write func(io.Writer) error) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range map[string]string{name: written(t, write), "work/file.txt": "x", "work/folder/inner": "x"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell runs a shell in the directory work of dir, without the user's configuration, and returns its output.
func shell(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = filepath.Join(dir, "work")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TERM=dumb", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	return string(out)
}

// completions are command lines, the last word incomplete, with what every shell completes it to.
var completions = []struct {
	line string
	want []string
}{
	{"corral re", []string{"reload", "repo"}},
	{"corral rel", []string{"reload"}},
	{"corral comp", []string{"completion"}},
	{"corral run --works", []string{"--workspace"}},
	{"corral run --workspace ", []string{"direct", "none", "overlay", "readonly"}},
	{"corral run --workspace o", []string{"overlay"}},
	{"corral run --repo ", []string{"folder"}},
	{"corral mcp --config fi", []string{"file.txt"}},
	{"corral mcp --log-level w", []string{"warn"}},
	{"corral session ", []string{"close", "exec", "forward", "list", "open"}},
	{"corral session op", []string{"open"}},
	{"corral session open --na", []string{"--name"}},
	{"corral repo add ", []string{"folder"}},
	{"corral policy test fi", []string{"file.txt"}},
	{"corral completion ", []string{"bash", "fish", "zsh"}},
	{"corral help ser", []string{"serve"}},
	{"corral repo add --workspace ", []string{"direct", "overlay", "readonly"}},
}

func TestBash(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("bash"))
	dir := place(t, "corral.bash", commands.Corral().Bash)
	const drive = `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _corral; printf '%s\n' "${COMPREPLY[@]}"`
	complete := func(words ...string) []string {
		args := append([]string{"bash", "--norc", "--noprofile", "-c", drive, "bash", filepath.Join(dir, "corral.bash")}, words...)
		got := strings.Fields(shell(t, dir, args...))
		slices.Sort(got)
		return slices.Compact(got)
	}
	for _, tt := range completions {
		if got := complete(strings.Split(tt.line, " ")...); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.line, got, tt.want)
		}
	}
	// = is a word of its own for bash.
	if got := complete("corral", "run", "--workspace", "=", "r"); !slices.Equal(got, []string{"readonly"}) {
		t.Errorf("after =: %q", got)
	}
	if got := complete("corral", "run", "--workspace", "="); len(got) != 4 {
		t.Errorf("at =: %q", got)
	}
	if got := complete("corral", "run", "--timeout", "1s", "--", "bas"); !slices.Contains(got, "bash") {
		t.Errorf("a program: %q", got)
	}
	if got := complete("corral", "run", "--", "cat", "fi"); !slices.Equal(got, []string{"file.txt"}) {
		t.Errorf("an argument of a program: %q", got)
	}
	if got := complete("corral", "run", "--memory", ""); len(got) > 0 {
		t.Errorf("a size: %q", got)
	}
	if got := shell(t, dir, "bash", "--norc", "-c", `source "$1" && complete -p corral`, "bash", filepath.Join(dir, "corral.bash")); got != "complete -F _corral corral\n" {
		t.Errorf("%q", got)
	}
}

func TestFish(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("fish"))
	dir := place(t, "corral.fish", commands.Corral().Fish)
	for _, tt := range completions {
		var got []string
		for line := range strings.Lines(shell(t, dir, "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
			filepath.Join(dir, "corral.fish"), tt.line)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, strings.TrimSuffix(name, "/"))
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.line, got, tt.want)
		}
	}
}

// zshDrive types lines and TAB into a shell on a terminal of its own, and prints each line that the shell then has.
const zshDrive = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; PROMPT_EOL_MARK=; fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u"
zpty -w shell "show() { BUFFER=\"print -r -- '<'\${(qqq)BUFFER}'>'\"; zle accept-line }; zle -N show; bindkey '^X' show; print RE''ADY"
local out
while zpty -r shell out; do [[ $out == *READY* ]] && break; done
for line in "${@:2}"; do
	zpty -w -n shell "$line"$'\t\x18'
	while zpty -r shell out; do
		[[ $out == *'<corral'*'>'* ]] && { print -r -- "$out"; break; }
	done
done
`

func TestZsh(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("zsh"))
	dir := place(t, "_corral", commands.Corral().Zsh)
	escapes := regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|.\x08|\r`)
	args := []string{"zsh", "-f", "-c", zshDrive, "zsh", dir}
	var want []string
	for _, tt := range completions {
		if len(tt.want) == 1 { // zsh lists several below the line
			args = append(args, tt.line)
			want = append(want, tt.line[:strings.LastIndex(tt.line, " ")+1]+tt.want[0])
		}
	}
	var got []string
	for line := range strings.Lines(escapes.ReplaceAllString(shell(t, dir, args...), "")) {
		if _, line, found := strings.Cut(line, "<corral "); found {
			got = append(got, "corral "+strings.TrimRight(strings.TrimSpace(line), "=/ >"))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}

// TestManual: the formatters of manual pages find nothing to warn about.
func TestManual(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("mandoc"))
	p, from := commands.Corral(), commandline.Source{Version: "1.0", Date: "2026-11-23"}
	pages := map[string]string{
		"corral.1":  written(t, func(w io.Writer) error { return p.Man(w, from) }),
		"corrald.8": written(t, func(w io.Writer) error { return commands.Corrald().Man(w, "8", from, "corral(1)") }),
	}
	for n := range p.Commands {
		if c := &p.Commands[n]; len(c.Usage) > 0 {
			pages["corral-"+c.Name+".1"] = written(t, func(w io.Writer) error { return p.ManOf(c, w, from) })
		}
	}
	for name, text := range pages {
		dir := place(t, name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
		if out := shell(t, dir, "mandoc", "-Tlint", "-W", "warning", filepath.Join(dir, name)); out != "" {
			t.Errorf("%s: %s", name, out)
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION"} {
			if !strings.Contains(text, ".SH "+section+"\n") {
				t.Errorf("%s has no section %s", name, section)
			}
		}
	}
}
