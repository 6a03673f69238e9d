package logtest

import (
	"fmt"
)

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
