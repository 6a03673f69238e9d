package relay

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestOverrides: no header has a server take another method or path than those that were checked.
func TestOverrides(t *testing.T) {
	for _, name := range []string{
		"X-HTTP-Method-Override", "x-http-method", "X_HTTP_Method_Override", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL",
		"X-Forwarded-Method", "x_forwarded_path", "X-Amz-Copy-Source", "X-Ms-Rename-Source",
	} {
		w := newSecure(t, "example.org", nil, nil)
		in, err := http.NewRequest(http.MethodGet, "https://example.org/open", nil)
		if err != nil {
			t.Fatal(err)
		}
		in.Header[name] = []string{"DELETE"}
		reply, err := w.client(false).Do(in)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if got, denied := w.take(); reply.StatusCode != http.StatusForbidden || len(got) > 0 || len(denied) != 1 || !strings.Contains(denied[0], "another method or path") {
			t.Errorf("%s: %s, the server got %q, denied %q", name, reply.Status, got, denied)
		}
	}
}

// TestHeaders: where rules name methods or paths, a header that neither many clients send nor the rules name is left out, and told. Where they
// name neither, all are passed on. The header of the rule's secret is one that it names.
func TestHeaders(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var got http.Header
		w := newSecure(t, "example.org", &Secret{Header: "X-Acme-Key", Format: "{}", Value: value}, func(_ http.ResponseWriter, in *http.Request) { got = in.Header })
		var mu sync.Mutex
		var told []string
		w.relay.inspect.Headers = func(_, path string) ([]string, bool) {
			return []string{"x-acme-tenant"}, strings.HasPrefix(path, "/open/all/")
		}
		w.relay.inspect.Dropped = func(names []string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, names...)
		}
		known := []string{
			"Accept", "Authorization", "Anthropic-Version", "Cookie", "Git-Protocol", "If-None-Match", "Npm-Command", "Openai-Organization", "Private-Token",
			"Range", "Traceparent", "X-Api-Key", "X-Github-Api-Version", "X-Stainless-Lang", "session_id", "X-Acme-Tenant", "X-Acme-Key",
		}
		unknown := []string{"X-Acme-Other", "X-Override-Path", "X-Envoy-Original-Dst-Host", "Destination", "X-Proxied-Url", "Acceptor", "X_Acme_Tenant"}
		for path, all := range map[string]bool{"/open/some": false, "/open/all/of": true, "/open/all%2fof": false} {
			told = nil
			in, err := http.NewRequest(http.MethodPost, "https://example.org"+path, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Concat(known, unknown) {
				in.Header[name] = []string{"1"}
			}
			in.Header["X-Acme-Key"] = []string{placeholder}
			delete(in.Header, "Range") // which the guard of the secret takes off
			reply, err := w.client(http2).Do(in)
			if err != nil {
				t.Fatal(err)
			}
			reply.Body.Close()
			if reply.StatusCode != http.StatusOK || got.Get("X-Acme-Key") != value {
				t.Fatalf("%s: %s, the server got %q", path, reply.Status, got)
			}
			for _, name := range known {
				if name != "Range" && got[http.CanonicalHeaderKey(name)] == nil {
					t.Errorf("%s: the server got no %s", path, name)
				}
			}
			for _, name := range unknown {
				name = http.CanonicalHeaderKey(name)
				if passed := got[name] != nil; passed != all || slices.Contains(told, name) == all {
					t.Errorf("%s: %s was passed on: %v, told %q", path, name, passed, told)
				}
			}
		}
	}
}
