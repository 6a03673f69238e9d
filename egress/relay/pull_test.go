package relay

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestPull: what a Puller answers is what the job gets, its requests go to the host alone, and what it does not finish is cut off.
func TestPull(t *testing.T) {
	secret := &Secret{Header: "Authorization", Format: "Bearer {}", Value: value}
	// fetch requests another path of what says that it is another host.
	fetch := func(path string) Puller {
		return func(w http.ResponseWriter, in *http.Request, host http.RoundTripper) error {
			out, err := http.NewRequestWithContext(in.Context(), http.MethodGet, "http://other.example.net:81"+path, nil)
			if err != nil {
				return err
			}
			out.Host, out.Header = in.Host, http.Header{"Authorization": in.Header["Authorization"], "Accept-Encoding": {"identity"}}
			reply, err := host.RoundTrip(out)
			if err != nil {
				return err
			}
			defer reply.Body.Close()
			if reply.Header.Get("Alt-Svc") != "" {
				t.Error("Alt-Svc is passed on")
			}
			_, err = io.Copy(w, reply.Body)
			return err
		}
	}
	for _, tt := range []struct {
		name, authorization string
		pull                Puller
		status              int // 0: cut off
		body, server        string
		denied              string
	}{
		{"an answer", "", func(w http.ResponseWriter, _ *http.Request, _ http.RoundTripper) error {
			_, err := io.WriteString(w, "kept")
			return err
		}, 200, "kept", "", ""},
		{"passed on", "", func(http.ResponseWriter, *http.Request, http.RoundTripper) error { return ErrPass }, 200, "hello", "GET example.org /open/a  ", ""},
		{"denied", "", func(http.ResponseWriter, *http.Request, http.RoundTripper) error { return &Denied{"too young"} }, 403, "corral: denied: too young", "", "too young"},
		{"failed", "", func(http.ResponseWriter, *http.Request, http.RoundTripper) error { return errors.New("no route") }, 502, "corral: no route", "", ""},
		{"another digest", "", func(w http.ResponseWriter, _ *http.Request, _ http.RoundTripper) error {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			return &Denied{"another digest"}
		}, 0, "half", "", "another digest"},
		{"a request of its own", "Bearer " + placeholder, fetch("/other"), 200, "hello", "GET example.org /other Bearer " + value, ""},
		{"a secret that comes back", "Bearer " + placeholder, fetch("/echo"), 403, "corral: denied: the response has a secret", "GET example.org /echo", errEcho.Why},
		{"a secret that comes back in the body", "Bearer " + placeholder, fetch("/echo/body"), 0, "", "GET example.org /echo/body", errEcho.Why},
	} {
		for _, http2 := range []bool{false, true} {
			w := newSecure(t, "example.org", secret, func(rw http.ResponseWriter, in *http.Request) {
				rw.Header().Set("Alt-Svc", `h3=":443"`)
				switch in.URL.Path {
				case "/echo":
					rw.Header().Set("X-You-Sent", in.Header.Get("Authorization"))
				case "/echo/body":
					_, _ = io.WriteString(rw, strings.Repeat("x", 1<<20)+in.Header.Get("Authorization"))
				}
				_, _ = io.WriteString(rw, "hello")
			})
			w.relay.inspect.Pull = func(method string, paths []string, used *Secret) Puller {
				if method != http.MethodGet || !slices.Equal(paths, []string{"/open/a"}) || (used != nil) != (tt.authorization != "") {
					t.Errorf("%s: asked for %s %q with %v", tt.name, method, paths, used)
				}
				return tt.pull
			}
			in, err := http.NewRequest(http.MethodGet, "https://example.org/open/a", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.authorization != "" {
				in.Header.Set("Authorization", tt.authorization)
			}
			var body []byte
			reply, err := w.client(http2).Do(in)
			if err == nil {
				body, err = io.ReadAll(reply.Body)
				reply.Body.Close()
			}
			got, denied := w.take()
			server, why := strings.Join(got, ""), strings.Join(denied, "")
			switch {
			case tt.status == 0:
				if err == nil || strings.Contains(string(body), value) {
					t.Errorf("%s: the job got %d bytes as a whole", tt.name, len(body))
				}
			case err != nil || reply.StatusCode != tt.status || !strings.HasPrefix(string(body), tt.body):
				t.Errorf("%s: %v %q, %v", tt.name, reply, body, err)
			}
			if !strings.HasPrefix(server, tt.server) || tt.server == "" && server != "" || why != tt.denied {
				t.Errorf("%s: server got %q, denied %q", tt.name, server, why)
			}
		}
	}
}

// TestPullReadings: a path that servers can read in two ways is checked in both, and without a Puller the request is passed on.
func TestPullReadings(t *testing.T) {
	w := newSecure(t, "example.org", nil, nil)
	var asked []string
	w.relay.inspect.Pull = func(_ string, paths []string, _ *Secret) Puller {
		asked = paths
		return nil
	}
	reply, err := w.client(true).Get("https://example.org/open/@scope%2fname")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if got, _ := w.take(); len(got) != 1 || !slices.Equal(asked, []string{"/open/@scope/name", "/open/@scope%2fname"}) {
		t.Errorf("server got %q, asked for %q", got, asked)
	}
}
