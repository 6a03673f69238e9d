package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"corral/front/cli"
	"corral/internal/text"
	"corral/isolate/wire"
)

// Sequences of ECMA-48 for the selected row: negative image, and default.
const (
	selected = "\x1b[7m"
	normal   = "\x1b[0m"
)

// maxSessions is the maximum number of sessions that are shown.
const maxSessions = 6

// View implements tea.Model.
func (m model) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	return v
}

// render returns the screen. Text from outside is escaped, so nothing in it controls the terminal.
func (m model) render() string {
	if m.fatal != nil {
		return ""
	}
	if m.follow != nil {
		return m.output()
	}
	lines := []string{
		fmt.Sprintf("%d jobs, %d sessions, by %s    %s", len(m.jobs), len(m.sessions), m.order, m.now.Format(time.TimeOnly)), "",
		row("JOB", "USER", "AGE", "CPUS", "CPU TIME", "MEMORY", "WHAT", "REPOSITORY"),
	}
	sessions := m.sessionLines()
	room := max(1, m.height-len(lines)-len(sessions)-2)
	at := m.index()
	first := max(0, min(at-room/2, len(m.jobs)-room))
	for n := first; n < min(len(m.jobs), first+room); n++ {
		lines = append(lines, m.jobLine(&m.jobs[n]))
		if n == at {
			lines[len(lines)-1] = selected + m.fit(lines[len(lines)-1]) + normal
		}
	}
	lines = append(lines, sessions...)
	for n, line := range lines {
		if !strings.HasPrefix(line, selected) {
			lines[n] = m.fit(line)
		}
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines[:m.height-1], m.fit(m.footer())), "\n")
}

func (m *model) footer() string {
	switch {
	case m.ending != "":
		return "end " + m.ending + "? y ends it, any other key does not"
	case m.note != "":
		return text.Escape(m.note)
	}
	return "↑↓ choose   f follow   x end   s sort   q quit"
}

// fit cuts a line at the width of the terminal.
func (m *model) fit(line string) string {
	r := []rune(line)
	if len(r) > m.width {
		return string(r[:max(0, m.width-1)]) + "…"
	}
	return line
}

func row(id, who, age, share, cpu, memory, what, repo string) string {
	return fmt.Sprintf("%-10s %-10s %8s %6s %9s %10s  %-28s %s", id, who, age, share, cpu, memory, what, repo)
}

func (m *model) jobLine(e *wire.Entry) string {
	share, cpu, memory := "-", "-", "-"
	if s, known := m.share[e.Job]; known {
		share = fmt.Sprintf("%.2f", s)
	}
	if e.CPU >= 0 {
		cpu = time.Duration(e.CPU).Truncate(10 * time.Millisecond).String()
	}
	if e.Memory >= 0 {
		memory = cli.FormatBytes(e.Memory)
	}
	what := strings.TrimSpace(e.Tool + " " + e.Runtime)
	if what == "" {
		what = "corral run"
	}
	age := m.now.Sub(time.Unix(0, e.Started)).Truncate(time.Second)
	return row(e.Job, text.Escape(m.users.Of(e.UID)), age.String(), share, cpu, memory, text.Escape(what), text.Escape(e.Repo))
}

func (m *model) sessionLines() []string {
	if len(m.sessions) == 0 {
		return nil
	}
	lines := []string{"", fmt.Sprintf("%-33s %-10s %5s %10s  %s", "SESSION", "USER", "JOBS", "DISK", "REPOSITORY")}
	for n, s := range m.sessions {
		if n == maxSessions {
			return append(lines, fmt.Sprintf("%d more", len(m.sessions)-n))
		}
		jobs := strconv.Itoa(s.Jobs)
		if s.Kept {
			jobs = "kept"
		}
		lines = append(lines, fmt.Sprintf("%-33s %-10s %5s %10s  %s", s.ID, text.Escape(m.users.Of(s.UID)), jobs,
			cli.FormatBytes(s.DiskUsed), text.Escape(s.Repo)))
	}
	return lines
}

// output shows the end of the output of a job.
func (m *model) output() string {
	lines, end := m.follow.tail(max(1, m.height-2))
	shown := []string{m.fit("output of " + m.follow.job + ", its end   esc list   ctrl+c quit")}
	for _, line := range lines {
		shown = append(shown, m.fit(text.Escape(line)))
	}
	for len(shown) < m.height-1 {
		shown = append(shown, "")
	}
	return strings.Join(append(shown[:m.height-1], m.fit(text.Escape(end))), "\n")
}
