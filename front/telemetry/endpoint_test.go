package telemetry

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestProxyPasswordNotInErrors: no error contains the password of a proxy, whatever fails.
func TestProxyPasswordNotInErrors(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" { // net/http reads the environment once per process
		for _, url := range []string{"http://user:secret@127.0.0.1:1", "socks5://user:secret@127.0.0.1:1"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyPasswordNotInErrors$", "-test.v")
			cmd.Env = append(os.Environ(), "HTTP_PROXY="+url, "NO_PROXY=", "no_proxy=", "REQUEST_METHOD=")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") || strings.Contains(string(out), "secret") {
				t.Errorf("%s: %v\n%s", url, err, out)
			}
		}
		return
	}
	c, err := (&Options{Endpoint: "http://otel.example.org", Getenv: func(string) string { return "" }}).collector()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.post(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v: not sent through the proxy", err)
	}
	if err := withoutUserInfo(errors.New(`proxyconnect: "http://user:secret@x"`)); strings.Contains(err, "secret") {
		t.Error(err)
	}
}

// FuzzRejected: rejected does not panic on any answer.
func FuzzRejected(f *testing.F) {
	for _, s := range []string{"", "\x0a\x06\x12\x02no\x08\x03", "\x0a\xff\xff\xff\xff\x0f", "\x08", "\x0a\x01\x08"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(_ *testing.T, answer []byte) { rejected(answer) })
}

func TestURL(t *testing.T) {
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		configured string
		env        map[string]string
		want       string // "" means an error
	}{
		{"", nil, "http://localhost:4318/v1/traces"},
		{"http://127.0.0.1:9", nil, "http://127.0.0.1:9/v1/traces"},
		{"http://127.0.0.1:9/", nil, "http://127.0.0.1:9/v1/traces"},
		{"https://otel.example.org/in", nil, "https://otel.example.org/in/v1/traces"},
		{"https://otel.example.org/v1/traces", nil, "https://otel.example.org/v1/traces"},
		{"", map[string]string{all: "http://a:1"}, "http://a:1/v1/traces"},
		{"", map[string]string{all: "http://a:1", traces: "http://b:2/in"}, "http://b:2/in"},
		{"http://c:3", map[string]string{all: "http://a:1", traces: "http://b:2/in"}, "http://c:3/v1/traces"},
		{"", map[string]string{all: "a:1"}, ""},
		{"", map[string]string{all: "unix:///run/x"}, ""},
		{"", map[string]string{all: "http://secret@a"}, ""},
		{"", map[string]string{traces: "http://"}, ""},
		{"http://a b", nil, ""},
	} {
		u, err := (&Options{Endpoint: tt.configured, Getenv: func(name string) string { return tt.env[name] }}).url()
		switch {
		case err != nil && (tt.want != "" || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q, %v: %v", tt.configured, tt.env, err)
		case err == nil && u.String() != tt.want:
			t.Errorf("%q, %v: %s, want %q", tt.configured, tt.env, u, tt.want)
		}
	}
}

// TestHeaders: the sources of headers, their precedence, and invalid ones.
func TestHeaders(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"
	for _, tt := range []struct {
		name, file string
		env        map[string]string
		want       string // NAME=VALUE of Authorization and X-Team; "" means none
		wrong      string // text of the error
	}{
		{"none", "", nil, "", ""},
		{"a file", file("good", "# for the collector\n\nAuthorization: Bearer secret:1\nx-team:  builds \n", 0o600), nil, "Bearer secret:1,builds", ""},
		{"a file before the environment", file("both", "X-Team: a", 0o640), map[string]string{all: "X-Team=b"}, ",a", ""},
		{"the environment", "", map[string]string{all: "Authorization=Bearer%20secret,x-team=b"}, "Bearer secret,b", ""},
		{"variable of traces", "", map[string]string{all: "x-team=b", traces: "x-team=c"}, ",c", ""},
		{"no file", filepath.Join(dir, "none"), nil, "", "no such file"},
		{"a directory", dir, nil, "", "not a regular file"},
		{"world-readable", file("open", "A: b", 0o644), nil, "", "chmod o-rwx"},
		{"no header", file("bad", "A: b\nBearer secret", 0o600), nil, "", "entry 2 is not a valid header"},
		{"invalid name", file("name", "A b: secret", 0o600), nil, "", "entry 1 is not a valid header"},
		{"a line in a line", "", map[string]string{all: "A=b%0d%0asecret"}, "", "entry 1 is not a valid header"},
		{"bad escapes", "", map[string]string{all: "A=%zzsecret"}, "", "entry 1 is not a valid header"},
		{"too long", file("long", strings.Repeat("# secret\n", 4000), 0o600), nil, "", "larger than 16384 bytes"},
	} {
		head, err := (&Options{HeadersFile: tt.file, Getenv: func(name string) string { return tt.env[name] }}).headers()
		switch {
		case err != nil:
			if tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", tt.name, err)
			}
		case tt.wrong != "":
			t.Errorf("%s: no error", tt.name)
		default:
			if got := strings.Trim(head.Get("Authorization")+","+head.Get("X-Team"), " "); got != tt.want && (tt.want != "" || len(head) > 0) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// TestHeadersOwner: headers from another user's file are not sent.
func TestHeadersOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "headers")
	if err := errors.Join(os.WriteFile(path, []byte("A: b"), 0o600), os.Chown(path, 1234, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Error(err)
	}
}

func TestLoopback(t *testing.T) {
	if names := []string{"localhost", "127.0.0.1", "::1"}; slices.ContainsFunc(names, func(s string) bool { return !loopback(s) }) {
		t.Error("a loopback name is not recognized")
	}
}
