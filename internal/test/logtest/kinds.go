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
	{name: "nginx", usual: nginxUsual, trouble: nginxTrouble},
	{name: "journal", usual: journalUsual, trouble: journalTrouble},
	{name: "go test", usual: goUsual, trouble: goTrouble},
	{name: "npm", usual: npmUsual, trouble: npmTrouble},
	{name: "cargo", usual: cargoUsual, trouble: cargoTrouble},
	{name: "java", usual: javaUsual, trouble: javaTrouble},
	{name: "python", usual: pythonUsual, trouble: pythonTrouble},
	{name: "kubernetes", head: "LAST SEEN   TYPE      REASON      OBJECT      MESSAGE\n", usual: kubeUsual, trouble: kubeTrouble},
	{name: "json lines", usual: jsonUsual, trouble: jsonTrouble},
	{name: "csv", head: "time,component,level,subject,detail,took_ms,node\n", usual: csvUsual, trouble: csvTrouble},
	{name: "markdown", head: "# Incident report\n\nWhat was seen in this week, by component.\n\n", usual: markdownUsual, trouble: markdownTrouble},
	{name: "compiler", usual: compilerUsual, trouble: compilerTrouble},
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

func (m *maker) address() string {
	return fmt.Sprintf("10.%d.%d.%d", m.r.IntN(4), m.r.IntN(256), m.r.IntN(256))
}

func (m *maker) nginx(method, uri string, status int) string {
	h, min, s, _ := m.clock()
	return fmt.Sprintf("%s - - [21/Nov/2026:%02d:%02d:%02d +0000] %q %d %d %q %q", m.address(), h, min, s, method+" "+uri+" HTTP/1.1", status,
		m.r.IntN(90000), "-", pick(m, []string{"Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "kube-probe/1.31", "Go-http-client/2.0"}))
}

func nginxUsual(m *maker, t thing) string {
	return m.nginx(pick(m, []string{"GET", "GET", "POST", "PUT"}), "/"+t.component+"/"+path(t.subject)+"/"+m.id(), 200+m.r.IntN(3)) + "\n"
}

func nginxTrouble(m *maker, t thing) (block, line, words string) {
	line = m.nginx("POST", "/"+t.component+"/"+path(t.subject)+"?reason="+snake(t.trouble), 500+m.r.IntN(4))
	return line + "\n", line, query(t.component, path(t.subject), snake(t.trouble))
}

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

func npmUsual(m *maker, t thing) string {
	v := fmt.Sprintf("%d.%d.%d", m.r.IntN(9), m.r.IntN(20), m.r.IntN(20))
	switch m.r.IntN(4) {
	case 0:
		return fmt.Sprintf("npm warn deprecated %s@%s: %s %s\n", t.component, v, t.subject, m.done())
	case 1:
		return fmt.Sprintf("npm timing idealTree:node_modules/%s Completed in %dms\n", t.component, m.r.IntN(300))
	}
	return fmt.Sprintf("npm http fetch GET 200 https://packages.example.com/%s/-/%s-%s.tgz %dms (cache %s)\n", t.component, path(t.subject), v,
		m.r.IntN(900), pick(m, []string{"hit", "miss", "revalidated"}))
}

func npmTrouble(m *maker, t thing) (block, line, words string) {
	line = fmt.Sprintf("npm error %s@%d.%d.0 install: %s while unpacking %s", t.component, m.r.IntN(9), m.r.IntN(20), t.trouble, t.subject)
	return "npm error code ELIFECYCLE\n" + line + "\n", line, query(t.component, t.trouble, t.subject)
}

func cargoUsual(m *maker, t thing) string {
	if m.r.IntN(5) > 0 {
		return fmt.Sprintf("   %s %s v%d.%d.%d\n", pick(m, []string{"Compiling", "Checking", "Downloaded"}), t.component, m.r.IntN(3), m.r.IntN(30), m.r.IntN(30))
	}
	n := m.r.IntN(900)
	return fmt.Sprintf("warning: unused variable: `%s`\n  --> %s/src/lib.rs:%d:9\n   |\n%d |     let %s = load();\n   |         ^ help: prefix it with an underscore\n\n",
		snake(t.subject), t.component, n, n, snake(t.subject))
}

func cargoTrouble(m *maker, t thing) (block, line, words string) {
	line = fmt.Sprintf("error: failed to run the build script of `%s`: %s in %s", t.component, t.trouble, snake(t.subject))
	return fmt.Sprintf("%s\n  process didn't exit successfully: `target/debug/build/%s-%s/build-script-build` (exit status: 101)\n\n", line, t.component, m.id()),
		line, query(t.component, t.trouble, snake(t.subject))
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
