package logtest

import (
	"fmt"
	"strings"
)

// A kind is a style of log.
type kind struct {
	name string
	head string
	// usual returns one or more lines about a thing without a trouble. trouble returns a block of lines about a trouble,
	// the line of it to find, and words of that line to search for.
	usual   func(*maker, thing) string
	trouble func(*maker, thing) (block, line, words string)
}

var kinds = [...]kind{
	{name: "journal", usual: journalUsual, trouble: journalTrouble},
	{name: "go test", usual: goUsual, trouble: goTrouble},
	{name: "java", usual: javaUsual, trouble: javaTrouble},
	{name: "json lines", usual: jsonUsual, trouble: jsonTrouble},
	{name: "markdown", head: "# Incident report\n\nWhat was seen in this week, by component.\n\n", usual: markdownUsual, trouble: markdownTrouble},
}

// snake, path and camel write words as names: nightly_snapshot, nightly-snapshot, NightlySnapshot.
func snake(s string) string { return strings.NewReplacer(" ", "_", "-", "_").Replace(s) }
func path(s string) string  { return strings.ReplaceAll(s, " ", "-") }

func camel(s string) string {
	var b strings.Builder
	for w := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ' ' || r == '-' }) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return b.String()
}

// query joins the words of a query.
func query(words ...string) string { return strings.Join(words, " ") }

// done returns a word for success.
func (m *maker) done() string {
	return pick(m, []string{"finished", "started", "accepted", "refreshed", "loaded", "handled", "written", "scheduled", "skipped, unchanged", "sent"})
}

// clock returns a time that advances with each block.
func (m *maker) clock() (h, min, s, ms int) {
	t := m.n*37 + 8*3600*1000
	return t / 3600000 % 24, t / 60000 % 60, t / 1000 % 60, t % 1000
}

func (m *maker) id() string { return fmt.Sprintf("%08x", m.r.Uint32()) }

func (m *maker) journal(unit, said string) string {
	h, min, s, _ := m.clock()
	return fmt.Sprintf("Nov 21 %02d:%02d:%02d host-%d %s[%d]: %s", h, min, s, m.r.IntN(9), unit, 300+m.r.IntN(60000), said)
}

func journalUsual(m *maker, t thing) string {
	switch m.r.IntN(4) {
	case 0:
		return m.journal("systemd", "Started "+t.component+".service - "+t.subject+".") + "\n"
	case 1:
		return m.journal("kernel", fmt.Sprintf("[%d.%06d] audit: type=1400 apparmor=\"ALLOWED\" profile=%q", m.n, m.r.IntN(1e6), t.component)) + "\n"
	}
	return m.journal(t.component, fmt.Sprintf("%s %s in %d ms", t.subject, m.done(), m.r.IntN(900))) + "\n"
}

func journalTrouble(m *maker, t thing) (block, line, words string) {
	line = m.journal(t.component, fmt.Sprintf("error: %s: %s (attempt %d)", t.subject, t.trouble, 1+m.r.IntN(5)))
	return line + "\n", line, query(t.component, t.trouble, t.subject)
}

func goUsual(m *maker, t thing) string {
	name := "Test" + camel(t.component) + camel(t.subject)
	switch m.r.IntN(5) {
	case 0:
		return fmt.Sprintf("ok  \texample.com/shop/%s\t%d.%03ds\n", snake(t.component), m.r.IntN(9), m.r.IntN(1000))
	case 1:
		return fmt.Sprintf("    %s_test.go:%d: %s %s\n", snake(t.component), m.r.IntN(900), t.subject, m.done())
	}
	return fmt.Sprintf("=== RUN   %s\n--- PASS: %s (0.%02ds)\n", name, name, m.r.IntN(100))
}

func goTrouble(m *maker, t thing) (block, line, words string) {
	name := "Test" + camel(t.subject)
	line = fmt.Sprintf("    %s_test.go:%d: %s: %s, want nil", snake(t.component), m.r.IntN(900), t.subject, t.trouble)
	return fmt.Sprintf("=== RUN   %s\n%s\n--- FAIL: %s (0.%02ds)\n", name, line, name, m.r.IntN(100)), line,
		query(snake(t.component)+"_test.go", t.subject, t.trouble)
}

func (m *maker) stamp() string {
	h, min, s, ms := m.clock()
	return fmt.Sprintf("2026-11-21T%02d:%02d:%02d.%03dZ", h, min, s, ms)
}

func javaUsual(m *maker, t thing) string {
	return fmt.Sprintf("%s  INFO [exec-%d] com.example.%s.%sService : %s %s\n", m.stamp(), m.r.IntN(16), snake(t.component), camel(t.subject), t.subject, m.done())
}

func javaTrouble(m *maker, t thing) (block, line, words string) {
	pkg := "com.example." + snake(t.component)
	line = fmt.Sprintf("Caused by: %s.%sException: %s", pkg, camel(t.subject), t.trouble)
	var b strings.Builder
	fmt.Fprintf(&b, "%s ERROR [exec-%d] %s.Handler : request %s failed\njava.lang.RuntimeException: giving up\n", m.stamp(), m.r.IntN(16), pkg, m.id())
	frames := func() {
		for range 3 + m.r.IntN(9) {
			u := m.any()
			fmt.Fprintf(&b, "\tat com.example.%s.%s.%s(%s.java:%d)\n", snake(u.component), camel(u.subject), pick(m, []string{"run", "apply", "invoke", "load"}),
				camel(u.subject), m.r.IntN(900))
		}
	}
	frames()
	b.WriteString(line + "\n")
	frames()
	b.WriteString("\t... 12 more\n")
	return b.String(), line, query(snake(t.component), camel(t.subject)+"Exception", t.trouble)
}
