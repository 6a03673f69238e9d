package run

import (
	"fmt"
	"path"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/tool"

	safe "corral/internal/text"
)

// WithFooter returns the text of a reply and its footer, on a line of its own.
func WithFooter(s string, parts []string) string {
	if len(parts) == 0 {
		return s
	}
	return Line(s) + Footer(parts)
}

// Line returns s with a newline at its end, unless it is empty.
func Line(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// OutputCut is part of the footer of a job whose output was longer than what is stored.
const OutputCut = "output limit reached: the rest is not stored"

// Reached returns the parts of a footer about a limit that made calls of the job fail.
func Reached(r *job.Result) []string {
	if r.Limit == job.LimitPIDs {
		return []string{"pids limit reached: it could not start more processes"}
	}
	if why, hint := r.NoSpace(); why != "" {
		return []string{why, hint}
	}
	return nil
}

// Footer returns the last line of a reply, such as "[exit 1, 5 ms]"; "" without parts.
func Footer(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return "[" + safe.Lines(strings.Join(parts, ", ")) + "]"
}

// Duration returns d as "5 ms", "2.1 s", "3 min", "5 h" or "4 days".
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

// maxSensitive is the maximum number of sensitive paths that a footer names.
const maxSensitive = 5

// GitDir returns the git directory that a changed path is or is in, unless that is above or at dir; "" for others. A file .git, which
// worktrees and submodules have, is a file as others are.
func GitDir(c job.Change, dir string) string {
	for n := range len(c.Path) + 1 {
		if n == len(c.Path) && c.Type != job.TypeDirectory || n < len(c.Path) && c.Path[n] != '/' {
			continue
		}
		if at := c.Path[:n]; path.Base(at) == ".git" && dir != at && !strings.HasPrefix(dir, at+"/") {
			return at
		}
	}
	return ""
}

// files counts what differs from the repository. Directories hold other files, and git status alone writes an index.
func files(c *job.Changes) []string {
	n, git := c.More, ""
	for _, e := range c.Entries {
		dir := GitDir(e, "")
		switch {
		case e.Type == job.TypeDirectory, dir != "" && e.Path == dir+"/index":
		case dir != "":
			git = dir + "/"
		default:
			n++
		}
	}
	switch {
	case n == 1:
		return []string{"1 file changed, not applied"}
	case n > 0, len(c.Entries) == 0:
		return []string{fmt.Sprintf("%d files changed, not applied", n)}
	case git != "":
		return []string{safe.Quote(git) + " changed, not applied"}
	}
	return nil
}

// Changed returns what a footer says about files: how many of the session's overlay differ from the repository, unless news is false,
// and which sensitive ones the job changed.
func Changed(r *job.Record, news bool) []string {
	var parts []string
	if c := r.Changes; c != nil && news {
		parts = append(parts, files(c)...)
	} else if c == nil && r.ChangesReason != "" {
		parts = append(parts, "changes not listed: "+tool.Clean(r.ChangesReason))
	}
	if note := r.Result.MountNote(safe.Quote); note != "" {
		parts = append(parts, note)
	}
	return append(parts, r.Result.SensitiveNotes(maxSensitive, safe.Quote, "")...)
}
