package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
)

// A shellCall is what an agent has its shell run. Claude Code joins a command of its tool Bash from these parts:
//
//	source SNAPSHOT 2>/dev/null || true && ... && eval 'COMMAND' && pwd -P >| REPORT
//
// SNAPSHOT has the functions and aliases of the user's shell, and REPORT is read for the directory in which the next command begins. Texts
// of hooks and MCP servers have neither, unless a hostile repository wrote them.
type shellCall struct {
	tool     bool   // of Bash: its input is empty
	script   string // what bash runs in the jail
	snapshot string // a file of the caller, whose content the job has at snapshotInside; "" is none
	report   string // a file of the caller that gets the job's last directory; "" is none
}

const (
	// snapshotInside is in the one directory that is private to each job in every kind of session.
	snapshotInside = "/dev/shm/.corral-snapshot"
	maxSnapshot    = 1 << 20

	sourceBegin = "source "
	sourceEnd   = " 2>/dev/null || true && "
	reportBegin = " && pwd -P >| "

	// In place of REPORT the script has the pipe that it gets as its input, see streams.noting.
	reportInside = " && pwd -P >&198"
	takeReport   = "exec 198>&0 </dev/null; "
)

// parseCall takes a text apart. temporary are directories in which Claude Code may have its temporary files.
func parseCall(text string, temporary ...string) (c shellCall) {
	c.script = text
	rest := text
	if after, ok := strings.CutPrefix(text, sourceBegin); ok {
		path, after := shellWord(after)
		if after, ok = strings.CutPrefix(after, sourceEnd); ok && isSnapshot(path) {
			c.tool, c.snapshot, rest = true, path, after
			c.script = sourceBegin + snapshotInside + sourceEnd + rest
		}
	}
	at := strings.LastIndex(rest, reportBegin)
	if at < 0 {
		return c
	}
	path, after := shellWord(rest[at+len(reportBegin):])
	if after == "" && isReport(path, temporary) {
		c.tool, c.report = true, path
		c.script = takeReport + c.script[:len(c.script)-len(rest)+at] + reportInside
	}
	return c
}

// kind is what the audit log calls the call. Claude Code starts hooks in process groups of their own, and servers in its own one.
func (c *shellCall) kind(asShell bool) string {
	switch {
	case asShell:
		return "command"
	case c.tool:
		return "bash"
	}
	if group, err := unix.Getpgid(agentPID()); err == nil && group != unix.Getpgrp() {
		return "hook"
	}
	return "server"
}

// isSnapshot and isReport accept names that Claude Code gives to its files, and that no other file of a user has.
func isSnapshot(path string) bool {
	name := filepath.Base(path)
	return filepath.IsAbs(path) && filepath.Base(filepath.Dir(path)) == "shell-snapshots" && strings.HasPrefix(name, "snapshot-") &&
		strings.HasSuffix(name, ".sh")
}

func isReport(path string, temporary []string) bool {
	id, named := strings.CutPrefix(filepath.Base(path), "claude-")
	id, ended := strings.CutSuffix(id, "-cwd")
	plain := !strings.ContainsFunc(id, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') })
	dir := filepath.Dir(path)
	return named && ended && plain && id != "" && filepath.IsAbs(path) && filepath.Clean(path) == path &&
		slices.ContainsFunc(temporary, func(t string) bool { return filepath.Clean(t) == dir })
}

// shellWord returns the word at the beginning of a text, without its quotes, and the rest; "" if the word has more than quotes.
func shellWord(text string) (word, rest string) {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			b.WriteByte(c)
		case c == '\\' && i+1 < len(text) && (quote == 0 || strings.IndexByte("\"\\$`", text[i+1]) >= 0):
			i++
			b.WriteByte(text[i])
		case c == '$' || c == '`':
			return "", text
		case quote != 0:
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(" \t\n;&|<>()*?[~", c) >= 0:
			return b.String(), text[i:]
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", text
	}
	return b.String(), ""
}

// readSnapshot returns the content of a regular file of the caller.
func readSnapshot(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", nil // bash would go on without it
		}
		return "", err
	}
	defer f.Close()
	if err := ownRegular(f); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSnapshot+1))
	if err == nil && len(b) > maxSnapshot {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSnapshot)
	}
	return string(b), err
}

// ownRegular returns nil for a regular file of the caller that has no other name.
func ownRegular(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a regular file of user %d with one name", f.Name(), os.Geteuid())
	}
	return nil
}

// reportDirectory writes the directory in which a job ended to the agent's file, if it is in the repository, also on the host. The job
// chose all of the text.
func reportDirectory(path, text, repo string) error {
	dir, ended := strings.CutSuffix(text, "\n")
	if !ended || len(text) > maxNote || strings.ContainsAny(dir, "\n\r\x00") || !directory.Within(dir, repo) {
		return nil // the agent goes on where it was
	}
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
		return nil
	}
	// Not O_TRUNC: what was put in its place stays as it is.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := ownRegular(f); err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return err
}

// repositoryFor returns the repository of a working directory: the agent's own, also when a command has gone into a repository nested in
// it. A command that is in another one is refused: a job of the agent's can have put a link to it where the agent goes on. An agent that is
// in none has that of the directory.
func repositoryFor(cwd string) (string, error) {
	if own, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", agentPID())); err == nil {
		if repo := directory.Repository(own); repo != "" {
			if !directory.Within(cwd, repo) {
				return "", fmt.Errorf("%q is not in the agent's repository %q, %w", cwd, repo, errOtherRepo)
			}
			return repo, nil
		}
	}
	if repo := directory.Repository(cwd); repo != "" {
		return repo, nil
	}
	return "", fmt.Errorf("%q %w", cwd, errNoRepo)
}

// agentPID returns the agent's process: the parent, or that of CLAUDE_PID if there is no more than a shell between the two, as for hooks.
func agentPID() int {
	parent, state, above := os.Getppid(), "", 0
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", parent))
	_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &above) // proc_pid_stat(5)
	if above > 0 && strconv.Itoa(above) == os.Getenv("CLAUDE_PID") {
		return above
	}
	return parent
}

// endWithParent has this process get SIGTERM when its parent ends, until its user changes.
func endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return nil
}

// endWithAgent has this process get SIGTERM when its parent or the agent ends: Claude Code that is killed tells nobody.
func endWithAgent() error {
	if err := endWithParent(); err != nil {
		return err
	}
	if pid, err := strconv.Atoi(os.Getenv("CLAUDE_PID")); err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return fmt.Errorf("process %d, which CLAUDE_PID names, has ended", pid)
	}
	agent := agentPID()
	if agent == os.Getppid() {
		return nil
	}
	fd, err := unix.PidfdOpen(agent, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	ended, err := os.NewFile(uintptr(fd), "agent").SyscallConn()
	if err != nil {
		return err
	}
	go func() { // until this process ends
		if ended.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 && err == nil
		}) == nil {
			_ = unix.Kill(os.Getpid(), unix.SIGTERM)
		}
	}()
	return nil
}
