package clients

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// versions are the versions of the protocol that the suite runs for.
var versions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// TestConformance runs the official suite against corral serve. conformance.yaml lists the checks that are expected to fail,
// with reasons; a check that passes although it is listed fails the test, too.
func TestConformance(t *testing.T) {
	needClients(t)
	h := newHost(t)
	tokens, section := principals()
	server := h.listen(t, h.configure(t, "default", section))
	conformance(t, server, tokens["ada"], "conformance.yaml")
}

// conformance runs the suite against a server, for each version of the protocol.
func conformance(t *testing.T, server, token, expected string) {
	t.Helper()
	suite := authorized(t, server, token)
	baseline, err := filepath.Abs(expected)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(modules(t), ".bin/node"), filepath.Join(modules(t), ".bin/conformance"),
				"server", "--url", suite, "--suite", "all", "--spec-version", version, "--expected-failures", baseline)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			_, summary, found := strings.Cut(string(out), "=== SUMMARY ===")
			if err != nil || !found {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(summary)
		})
	}
}

// authorized returns the address of a proxy that adds the token, which the suite cannot send. It changes nothing else: a
// foreign Host or Origin is passed on, and so are the answers, as they arrive.
func authorized(t *testing.T, server, token string) string {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(c, target.Host, l.Addr().String(), token)
		}
	}()
	return "http://" + l.Addr().String() + target.Path
}

// relay serves one connection to the proxy's address own.
func relay(c net.Conn, target, own, token string) {
	defer c.Close()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(c, to)
		c.Close()
	}()
	defer to.Close()
	for from := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		r.Host = strings.ReplaceAll(r.Host, own, target)
		if origin := r.Header.Get("Origin"); origin != "" {
			r.Header.Set("Origin", strings.ReplaceAll(origin, own, target))
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if r.Write(to) != nil {
			return
		}
	}
}

// TestReasons: each check that is expected to fail has a reason.
func TestReasons(t *testing.T) {
	entry := regexp.MustCompile(`^  - \S+ +# (fixture|no such|no asking): \S`)
	for _, file := range []string{"conformance.yaml", "conformance-fixture.yaml"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(b), "\nserver:\n")
		if list == "" {
			t.Errorf("%s: no list", file)
		}
		for line := range strings.Lines(list) {
			if !entry.MatchString(line) {
				t.Errorf("%s: no reason: %s", file, line)
			}
		}
	}
}
