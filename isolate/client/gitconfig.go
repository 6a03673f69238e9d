package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/gcfg/v2"
	"golang.org/x/sys/unix"

	"corral/job"
)

// Jobs do not see the files of the user's git configuration, which name programs and keys. Instead, git in a job has a generated
// system configuration with those of its settings that gitKeys lists. The repository's own configuration is read after it
// and wins, as it does outside.

// gitDir is the directory of the generated files: /dev/shm alone is private to each job in every kind of session.
const gitDir = "/dev/shm/.corral-git"

// gitOff is the key of the user's git configuration that, if false, keeps it from jobs.
const gitOff = "corral.jobs"

// gitKeys lists the settings that jobs get. They say who commits and how git compares, merges and prints. Settings that run a
// program, name a file or a server, or need a key are not among them: aliases, helpers, hooks, pagers, editors, templates,
// signatures, URLs.
var gitKeys = strings.Fields(`
	user.name user.email user.useconfigonly author.name author.email committer.name committer.email
	init.defaultbranch init.defaultobjectformat init.defaultrefformat
	core.autocrlf core.eol core.safecrlf core.whitespace core.quotepath core.commentchar core.abbrev
	commit.cleanup commit.status commit.verbose tag.sort branch.sort branch.autosetupmerge branch.autosetuprebase
	pull.ff pull.rebase push.default push.autosetupremote push.followtags fetch.prune fetch.prunetags
	merge.conflictstyle merge.ff merge.renames merge.directoryrenames rebase.autosquash rebase.autostash rebase.updaterefs
	rerere.enabled rerere.autoupdate apply.whitespace apply.ignorewhitespace submodule.recurse
	diff.algorithm diff.colormoved diff.context diff.interhunkcontext diff.indentheuristic diff.mnemonicprefix diff.noprefix
	diff.renames diff.submodule diff.wserrorhighlight log.abbrevcommit log.date log.decorate log.follow format.pretty
	status.branch status.showstash status.showuntrackedfiles status.short status.submodulesummary color.ui column.ui
`)

// Bounds of what jobs get. A setting or a file beyond its bound is left out: half of a list of patterns would be another list.
const (
	maxGitValue   = 1 << 10
	maxGitOutput  = 1 << 20 // of git config
	maxGitConfig  = 16 << 10
	maxGitPattern = 64 << 10
	minGitTmp     = 1 << 20 // of a job's limit tmp, which the files count for
	minGitInodes  = 64
	gitWait       = 10 * time.Second // git waits for a FIFO that a job made of its repository's configuration
)

// settings is a user's git configuration, as far as jobs get it.
type settings struct {
	config     string
	ignore     string // path of core.excludesFile
	attributes string // path of core.attributesFile
	off        bool
	filters    map[string]*filter
}

// addGitSettings returns the files and the environment of a job with the generated configuration in addition to those of spec. They
// are unchanged for a job that has a system configuration of its own, sees no repository or has little room, and without a
// configuration of the user.
func addGitSettings(spec job.Spec) (files []job.File, env []string) {
	l := spec.Limits
	small := l.Tmp > 0 && l.Tmp < minGitTmp || l.TmpInodes > 0 && l.TmpInodes < minGitInodes
	has := slices.ContainsFunc(spec.Env, func(v string) bool {
		return strings.HasPrefix(v, "GIT_CONFIG_SYSTEM=") || strings.HasPrefix(v, "GIT_CONFIG_NOSYSTEM=")
	})
	if small || has || spec.Workspace == job.NoRepo || spec.Tool != job.ToolNone {
		return spec.Files, spec.Env
	}
	generated := gitSettings(spec.Repo)
	if generated == nil {
		return spec.Files, spec.Env
	}
	return slices.Concat(spec.Files, generated), slices.Concat(spec.Env, []string{"GIT_CONFIG_SYSTEM=" + gitDir + "/config"})
}

// gitSettings returns the generated files for jobs in repo, which may be "". They have no settings of root's: its configuration may
// name what only root may know.
func gitSettings(repo string) []job.File {
	s := newSettings()
	if os.Getuid() != 0 {
		s.readUser(homeDir(), repo)
	}
	return s.files(repo)
}

func newSettings() *settings { return &settings{filters: map[string]*filter{}} }

// readUser reads the configuration of the user with a home directory. Without one, and if git cannot read it, s stays empty: a job is
// worth more than its user's settings.
func (s *settings) readUser(home, repo string) {
	config := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	s.ignore, s.attributes = filepath.Join(config, "git/ignore"), filepath.Join(config, "git/attributes")
	if s.readFiles(home, config) {
		return
	}
	text, err := readGitConfig(home, repo)
	if err != nil {
		s.ignore, s.attributes = "", ""
		return
	}
	s.read(text, home)
}

// errInclude means that a configuration includes other files.
var errInclude = errors.New("the configuration includes other files")

// readFiles reads a configuration in its usual files that includes no other file, in a fraction of the time that git takes, which is
// more than a job needs to start. It returns false for git to read it.
func (s *settings) readFiles(home, config string) bool {
	if os.Getenv("GIT_CONFIG_GLOBAL") != "" || os.Getenv("GIT_CONFIG_NOSYSTEM") != "" {
		return false
	}
	read, system := newSettings(), cmp.Or(os.Getenv("GIT_CONFIG_SYSTEM"), "/etc/gitconfig")
	for _, path := range []string{system, filepath.Join(config, "git/config"), filepath.Join(home, ".gitconfig")} {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		text, ok := readRegular(path, maxGitOutput)
		if !ok {
			return true // git would wait for what a job can put there, a FIFO: no settings
		}
		if gcfg.ReadWithCallback(strings.NewReader(text), func(section, sub, key, value string, blank bool) error {
			section, key = strings.ToLower(section), strings.ToLower(key)
			switch {
			case section == "include" || section == "includeif":
				return errInclude
			case key == "":
				return nil // the head of a section
			case sub != "":
				section += "." + sub
			}
			if blank {
				value = "true"
			}
			read.note(section+"."+key, value, home)
			return nil
		}) != nil {
			return false
		}
	}
	read.ignore, read.attributes = cmp.Or(read.ignore, s.ignore), cmp.Or(read.attributes, s.attributes)
	*s = *read
	return true
}

// homeDir returns the home directory of this process's user. In a process that sudo started and that is no longer root, HOME may be
// root's.
func homeDir() string {
	id := strconv.Itoa(os.Getuid())
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && os.Getenv("SUDO_UID") != id {
		return home
	}
	if u, err := user.LookupId(id); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir
	}
	return "/nonexistent"
}

// gitPrograms are the places of git. PATH may name a directory that jobs write to.
var gitPrograms = []string{"/usr/local/bin/git", "/usr/bin/git", "/bin/git", "/run/current-system/sw/bin/git"}

// readGitConfig returns what git config --list prints in repo: git knows which files there are and which includes apply there.
func readGitConfig(home, repo string) (string, error) {
	at := slices.IndexFunc(gitPrograms, func(path string) bool { return unix.Access(path, unix.X_OK) == nil })
	if at < 0 {
		return "", exec.ErrNotFound
	}
	ctx, stop := context.WithTimeout(context.Background(), gitWait)
	defer stop()
	cmd := exec.CommandContext(ctx, gitPrograms[at], "config", "--list", "-z", "--show-scope")
	cmd.Dir, cmd.WaitDelay = repo, time.Second
	if repo == "" {
		cmd.Dir = "/"
	}
	// A configuration can have git write a trace to a file.
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin", "GIT_TRACE2=0", "GIT_TRACE2_EVENT=0", "GIT_TRACE2_PERF=0"}
	for _, name := range []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(stdout, maxGitOutput))
	if len(b) == maxGitOutput {
		stop()
		err = errors.New("too many settings")
	}
	return string(b), errors.Join(err, cmd.Wait())
}

// read reads what git config --list printed: for each setting its scope and a NUL, its name and, unless that alone stands for true,
// a newline and its value, and a NUL. Only what the user and the administrator configured counts.
func (s *settings) read(text, home string) {
	words := strings.Split(text, "\x00")
	for n := 0; n+1 < len(words); n += 2 {
		name, value, valued := strings.Cut(words[n+1], "\n")
		if scope := words[n]; scope != "global" && scope != "system" {
			continue
		}
		if !valued {
			value = "true"
		}
		s.note(name, value, home)
	}
}

// note notes a setting, if jobs get it.
func (s *settings) note(name, value, home string) {
	switch {
	case len(value) > maxGitValue || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' }):
	case name == gitOff:
		s.off = isFalse(value)
	case name == "core.excludesfile":
		s.ignore = expand(value, home)
	case name == "core.attributesfile":
		s.attributes = expand(value, home)
	case strings.HasPrefix(name, "filter."):
		s.noteFilter(name, value)
	case slices.Contains(gitKeys, name):
		s.set(name, value)
	}
}

// isFalse reports whether git takes a value for false, see "Values" in git-config(1).
func isFalse(value string) bool {
	return slices.Contains([]string{"false", "no", "off", "0", ""}, strings.ToLower(value))
}

// expand returns a path of a configuration with the home directory in place of ~.
func expand(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home, rest)
	}
	return path
}

// set adds a setting. Its name has two parts, or three: then the second may have any character but newline and NUL.
func (s *settings) set(name, value string) {
	first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
	section := name[:first]
	if first < last {
		section += " " + quoteGit(name[first+1:last])
	}
	line := "[" + section + "]\n\t" + name[last+1:] + " = " + quoteGit(value) + "\n"
	if len(s.config)+len(line) <= maxGitConfig {
		s.config += line
	}
}

// quoteGit quotes a value of a configuration file, see "Syntax" in git-config(1).
func quoteGit(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(value) + `"`
}

// files returns the generated files for jobs in repo, nil if no setting is for them. The system configuration of the job's own root
// comes first.
func (s *settings) files(repo string) []job.File {
	if s.off {
		return nil
	}
	if hasWorktrees(repo) { // those for which otherWorktrees has no room git would take for removed
		s.set("gc.worktreepruneexpire", "never")
	}
	var files []job.File
	for _, f := range []struct{ key, path, word, name string }{
		{"core.excludesfile", s.ignore, "ignore exclude", "ignore"},
		{"core.attributesfile", s.attributes, "attributes", "attributes"},
	} {
		if text := readPatterns(f.path, strings.Fields(f.word)); text != "" {
			files = append(files, job.File{Path: gitDir + "/" + f.name, Content: text})
			s.set(f.key, gitDir+"/"+f.name)
		}
	}
	s.setFilters()
	if len(s.config) == 0 {
		return nil
	}
	const head = "# Generated by corral from the user's git configuration.\n[include]\n\tpath = /etc/gitconfig\n"
	return append(files, job.File{Path: gitDir + "/config", Content: head + s.config})
}

// hasWorktrees reports whether a repository has or is a worktree of git.
func hasWorktrees(repo string) bool {
	info, err := os.Lstat(filepath.Join(repo, ".git"))
	if err == nil && info.IsDir() {
		_, err = os.Lstat(filepath.Join(repo, ".git/worktrees"))
	}
	return err == nil && repo != "" && (info.IsDir() || info.Mode().IsRegular())
}

// readPatterns returns the content of a regular file, "" if it is larger than maxGitPattern. One of words must be part of its name,
// with links resolved: a job that can write to the user's configuration, in a repository with it, must not choose which file the
// next job sees.
func readPatterns(path string, words []string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) {
		return ""
	}
	name := strings.ToLower(filepath.Base(real))
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) }) {
		return ""
	}
	text, _ := readResolved(real, maxGitPattern) // real was checked: a link that a job puts in its place since is not followed
	return text
}

// readRegular returns the content of a regular file of less than most bytes, with links resolved. It does not wait for other files: in
// a repository with the user's configuration, a job can put a FIFO there.
func readRegular(path string, most int64) (text string, ok bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	return readResolved(real, most)
}

// readResolved is readRegular for a path without links.
func readResolved(real string, most int64) (text string, ok bool) {
	fd, err := unix.Openat2(unix.AT_FDCWD, real, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return "", false
	}
	f := os.NewFile(uintptr(fd), real)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || int64(len(b)) > most {
		return "", false
	}
	return string(b), true
}

// A filter is a driver of gitattributes(5) that the user configured.
type filter struct {
	commands map[string]string // clean, smudge, process
	required bool
}

// gitFilters are filters that jobs run: programs of packages, by all their known commands.
var gitFilters = map[string][]string{
	"lfs": {
		"git-lfs clean -- %f", "git-lfs smudge -- %f", "git-lfs filter-process", "git-lfs smudge --skip -- %f", "git-lfs filter-process --skip",
	},
}

// maxFilters is the maximum number of a user's filters.
const maxFilters = 16

func (s *settings) noteFilter(key, value string) {
	name, variable := strings.TrimPrefix(key, "filter."), ""
	if at := strings.LastIndexByte(name, '.'); at > 0 {
		name, variable = name[:at], name[at+1:]
	}
	plain := !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	})
	if !plain || len(name) > 64 || s.filters[name] == nil && len(s.filters) == maxFilters {
		return
	}
	if s.filters[name] == nil {
		s.filters[name] = &filter{commands: map[string]string{}}
	}
	switch variable {
	case "clean", "smudge", "process":
		s.filters[name].commands[variable] = value
	case "required":
		s.filters[name].required = !isFalse(value)
	}
}

// setFilters adds the filters. One whose program jobs do not run says so, once in each job, instead of being left out without a
// word: it passes files unchanged, or fails if git must not go on without it.
func (s *settings) setFilters() {
	for _, name := range slices.Sorted(maps.Keys(s.filters)) {
		f := s.filters[name]
		known := true
		for _, command := range f.commands {
			known = known && slices.Contains(gitFilters[name], command)
		}
		for _, variable := range []string{"clean", "smudge", "process"} {
			command, ok := f.commands[variable]
			switch {
			case ok && known:
				s.set("filter."+name+"."+variable, command)
			case !known && variable != "process": // git prefers process
				s.set("filter."+name+"."+variable, missing(name, f.required))
			}
		}
		if f.required {
			s.set("filter."+name+".required", "true")
		}
	}
}

// missing returns the command of a filter that jobs do not run.
func missing(name string, required bool) string {
	effect, end := "files pass it unchanged", "cat"
	if required {
		effect, end = "it is required, so git stops", "exit 1"
	}
	return fmt.Sprintf(`f=%[1]s/%[2]s.filter; [ -e $f ] || { : >$f; echo "corral: jobs do not run the filter %[2]s of the user's git `+
		`configuration: %[3]s (hint: to run it in jobs, configure it in the repository, see git config --local)" >&2; }; %[4]s`,
		gitDir, name, effect, end)
}
