package logtest

import (
	"fmt"
	"strings"
)

func pythonUsual(m *maker, t thing) string {
	return fmt.Sprintf("%s %s:%d INFO %s %s after %d ms\n", m.stamp(), snake(t.component)+".worker", m.r.IntN(900), t.subject, m.done(), m.r.IntN(500))
}

func pythonTrouble(m *maker, t thing) (block, line, words string) {
	var b strings.Builder
	b.WriteString("Traceback (most recent call last):\n")
	for range 2 + m.r.IntN(7) {
		u := m.any()
		fmt.Fprintf(&b, "  File \"/srv/%s/%s.py\", line %d, in %s\n    return self.%s(%s)\n", snake(u.component), snake(u.subject), m.r.IntN(900),
			pick(m, []string{"run", "apply", "load"}), pick(m, []string{"run", "apply", "load"}), snake(u.subject))
	}
	line = fmt.Sprintf("%s.errors.StoreError: %s: %s", snake(t.component), t.trouble, t.subject)
	return b.String() + line + "\n\n", line, query(snake(t.component), t.trouble, t.subject)
}

func (m *maker) event(kind, reason, object, said string) string {
	return fmt.Sprintf("%-11s %-9s %-11s pod/%s-%s   %s", fmt.Sprintf("%dm%ds", m.r.IntN(60), m.r.IntN(60)), kind, reason, object, m.id()[:5], said)
}

func kubeUsual(m *maker, t thing) string {
	switch m.r.IntN(3) {
	case 0:
		return m.event("Normal", "Pulled", t.component, fmt.Sprintf("Container image \"images.example.com/%s:%s\" already present on machine", t.component, path(t.subject))) + "\n"
	case 1:
		return m.event("Normal", "Scheduled", t.component, fmt.Sprintf("Successfully assigned shop/%s to node-%d", t.component, m.r.IntN(40))) + "\n"
	}
	return m.event("Normal", "Started", t.component, "Started container "+path(t.subject)) + "\n"
}

func kubeTrouble(m *maker, t thing) (block, line, words string) {
	line = m.event("Warning", pick(m, []string{"Unhealthy", "BackOff", "Failed"}), t.component,
		fmt.Sprintf("Readiness probe of %s failed: %s", path(t.subject), t.trouble))
	return line + "\n", line, query(t.component, path(t.subject), t.trouble)
}

func (m *maker) record(level, service, said string) string {
	return fmt.Sprintf(`{"time":%q,"level":%q,"service":%q,"request":%q,"msg":%q,"took_ms":%d}`, m.stamp(), level, service, m.id(), said, m.r.IntN(900))
}

func jsonUsual(m *maker, t thing) string {
	return m.record(pick(m, []string{"info", "info", "debug"}), t.component, t.subject+" "+m.done()) + "\n"
}

func jsonTrouble(m *maker, t thing) (block, line, words string) {
	line = m.record("error", t.component, t.subject+": "+t.trouble)
	return line + "\n", line, query(t.component, t.trouble, t.subject)
}

func (m *maker) row(component, level, subject, detail string) string {
	return fmt.Sprintf("%s,%s,%s,%s,%s,%d,node-%d", m.stamp(), component, level, subject, detail, m.r.IntN(900), m.r.IntN(40))
}

func csvUsual(m *maker, t thing) string {
	return m.row(t.component, "info", t.subject, strings.ReplaceAll(m.done(), ",", "")) + "\n"
}

func csvTrouble(m *maker, t thing) (block, line, words string) {
	line = m.row(t.component, "error", t.subject, t.trouble)
	return line + "\n", line, query(t.component, t.subject, t.trouble)
}

func markdownUsual(m *maker, t thing) string {
	switch m.r.IntN(12) {
	case 0:
		return fmt.Sprintf("\n## %s\n\n", t.component)
	case 1:
		return fmt.Sprintf("\n### %s\n\nThe team of %s looked at the %s on day %d and saw nothing new.\n", t.subject, t.component, t.subject, m.r.IntN(7))
	case 2:
		return fmt.Sprintf("\n```sh\n%s --check %s\nkubectl get pods -l app=%s\n```\n\n", t.component, path(t.subject), t.component)
	case 3:
		return fmt.Sprintf("\nThroughput of %s was %d per second. It %s as planned, and the %s was %s.\n", t.component, m.r.IntN(9000), m.done(), t.subject, m.done())
	}
	return fmt.Sprintf("- %s: %s %s, %d times\n", t.component, t.subject, m.done(), m.r.IntN(90))
}

func markdownTrouble(m *maker, t thing) (block, line, words string) {
	line = fmt.Sprintf("- **%s**: %s for the %s, %d users saw it", t.component, t.trouble, t.subject, m.r.IntN(900))
	return line + "\n", line, query(t.component, t.trouble, t.subject)
}

func compilerUsual(m *maker, t thing) string {
	file := "src/" + snake(t.component) + "/" + snake(t.subject)
	switch m.r.IntN(4) {
	case 0:
		return fmt.Sprintf("gcc -O2 -Wall -Iinclude -c %s.c -o build/%s.o\n", file, snake(t.subject))
	case 1:
		return fmt.Sprintf("openat(AT_FDCWD, \"%s.h\", O_RDONLY|O_NOCTTY) = %d\n", file, 3+m.r.IntN(9))
	case 2:
		return fmt.Sprintf("[pid %5d] read(%d, \"\\177ELF\\2\\1\\1\"..., %d) = 832\n", m.r.IntN(60000), 3+m.r.IntN(9), 832)
	}
	n := m.r.IntN(900)
	return fmt.Sprintf("%s.c:%d:%d: warning: unused parameter 'ctx' [-Wunused-parameter]\n%5d | static int %s(struct ctx *ctx)\n      |            ^~~~\n",
		file, n, m.r.IntN(80), n, snake(t.subject))
}

func compilerTrouble(m *maker, t thing) (block, line, words string) {
	n := m.r.IntN(900)
	line = fmt.Sprintf("src/%s.c:%d:%d: error: %s: in function '%s'", snake(t.component), n, m.r.IntN(80), t.trouble, snake(t.subject))
	return fmt.Sprintf("%s\n%5d | \treturn %s(ctx);\n", line, n, snake(t.subject)), line, query(snake(t.component)+".c", t.trouble, snake(t.subject))
}
