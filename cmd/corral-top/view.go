package main

import (
	"cmp"
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

// Maximum numbers of sessions and of denied requests that are shown.
const (
	maxSessions = 6
	maxDenials  = 4
)

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
	lines := []string{m.heading(), "", row("JOB", "USER", "AGE", "CPUS", "TREND", "CPU TIME", "MEMORY", "WHAT", "REPOSITORY", "COMMAND")}
	sessions := append(m.sessionLines(), m.denialLines()...)
	room := max(1, m.height-len(lines)-len(sessions)-3)
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
	if len(m.jobs) > 0 && m.height > detailHeight {
		e := &m.jobs[at]
		command := cmp.Or(e.Command, "its command is not known")
		lines[m.height-2] = m.fit(fmt.Sprintf("%s in %s: %s", e.Job, text.Escape(e.Repo), text.Escape(command)))
	}
	return strings.Join(append(lines[:m.height-1], m.fit(m.footer())), "\n")
}

// detailHeight is the number of lines above which one says more about the chosen job: the table has room for the beginning alone.
const detailHeight = 10

func (m *model) heading() string {
	jobs := strconv.Itoa(len(m.all))
	if len(m.jobs) < len(m.all) {
		jobs = fmt.Sprintf("%d of %d", len(m.jobs), len(m.all))
	}
	return fmt.Sprintf("%s jobs, %d sessions, %d denied lately, by %s    %s",
		jobs, len(m.sessions), len(m.denials), m.order, m.now.Format(time.TimeOnly))
}

func (m *model) footer() string {
	switch {
	case m.typing:
		return "show what contains: " + text.Escape(m.filter) + "_   enter keep   esc show all"
	case m.ending != "":
		return "end " + m.ending + "? y ends it, any other key does not"
	case m.note != "":
		return text.Escape(m.note)
	case m.filter != "":
		return "shown is what contains " + text.Quote(m.filter) + "   esc show all   / change"
	}
	return "↑↓ choose   f follow   x end   s sort   / filter   q quit"
}

// fit cuts a line at the width of the terminal.
func (m *model) fit(line string) string {
	r := []rune(line)
	if len(r) > m.width {
		return string(r[:max(0, m.width-1)]) + "…"
	}
	return line
}

func row(id, who, age, share, trend, cpu, memory, what, repo, command string) string {
	return fmt.Sprintf("%-14s %-8s %8s %5s %-*s %9s %10s  %s %s %s", id, cell(who, 8), age, share, trendLength, trend, cpu, memory,
		cell(what, 24), cell(end(repo, 18), 18), command)
}

// cell returns a text in a column: cut or filled up.
func cell(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return fmt.Sprintf("%-*s", width, s)
}

// end returns the end of a path that is longer than a column.
func end(path string, width int) string {
	if r := []rune(path); len(r) > width {
		return "…" + string(r[len(r)-width+1:])
	}
	return path
}

// whatOf says which tool of a front-end a job is from, or the command that has no front-end.
func whatOf(tool, runtime string) string {
	return cmp.Or(strings.TrimSpace(tool+" "+runtime), "corral run")
}

// bars are characters that fill an eighth of a line to all of it.
var bars = []rune("▁▂▃▄▅▆▇█")

// trend shows numbers of CPUs as bars: the highest is the highest that fits, or one CPU.
func trend(shares []float64) string {
	most := 1.0
	for _, s := range shares {
		most = max(most, s)
	}
	var b strings.Builder
	for _, s := range shares {
		b.WriteRune(bars[int(s/most*float64(len(bars)-1)+0.5)])
	}
	return b.String()
}

func (m *model) jobLine(e *wire.Entry) string {
	share, cpu, memory := "-", "-", "-"
	shares := m.share[e.Job]
	if len(shares) > 0 {
		share = fmt.Sprintf("%.2f", shares[len(shares)-1])
	}
	if e.CPU >= 0 {
		cpu = time.Duration(e.CPU).Truncate(10 * time.Millisecond).String()
	}
	if e.Memory >= 0 {
		memory = cli.FormatBytes(e.Memory)
	}
	age := m.now.Sub(time.Unix(0, e.Started)).Truncate(time.Second)
	return row(e.Job, text.Escape(m.users.Of(e.UID)), age.String(), share, trend(shares), cpu, memory, text.Escape(whatOf(e.Tool, e.Runtime)),
		text.Escape(e.Repo), text.Escape(e.Command))
}

func (m *model) sessionLines() (lines []string) {
	for _, s := range m.sessions {
		if !m.matches(s.ID, s.Name, m.users.Of(s.UID), s.Repo) {
			continue
		}
		jobs := strconv.Itoa(s.Jobs)
		if s.Kept {
			jobs = "kept"
		}
		lines = append(lines, fmt.Sprintf("%-33s %-10s %5s %10s  %s", s.ID, text.Escape(m.users.Of(s.UID)), jobs, cli.FormatBytes(s.DiskUsed),
			text.Escape(s.Repo)))
	}
	if more := len(lines) - maxSessions; more > 0 {
		lines = append(lines[:maxSessions], fmt.Sprintf("%d more", more))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"", fmt.Sprintf("%-33s %-10s %5s %10s  %s", "SESSION", "USER", "JOBS", "DISK", "REPOSITORY")}, lines...)
}

// denialLines shows the last requests that were denied or refused, the last one first.
func (m *model) denialLines() (lines []string) {
	for n := len(m.denials) - 1; n >= 0 && len(lines) < maxDenials; n-- {
		d := &m.denials[n]
		what := whatOf(d.Tool, d.Runtime)
		if !m.matches(d.Job, m.users.Of(d.UID), what, d.Principal, d.Repo, d.Reason) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%-14s %-8s %s %s %s", time.Unix(0, d.At).Format(time.TimeOnly),
			cell(text.Escape(m.users.Of(d.UID)), 8),
			cell(text.Escape(what), 24), cell(end(text.Escape(d.Repo), 18), 18), text.Escape(d.Reason)))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"", fmt.Sprintf("%-14s %-8s %-24s %-18s %s", "DENIED", "USER", "WHAT", "REPOSITORY", "REASON")}, lines...)
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
