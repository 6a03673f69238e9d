// Package network tests the network access of jobs: from a client in a jail, through a door and corral-egress, to the servers of an
// Internet of the test.
package network

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/test/supervise"
	"corral/job"
)

func TestMain(m *testing.M) {
	os.Exit(nettest.InInternet(func() int { return supervise.Main(m) }))
}

// rules allow what the tests expect: the networks of the Internet of the test are the host's own.
const rules = `{"allow":[{"host":"web.example.org"},{"host":"web.example.org","protocol":"http"},{"host":"*.wild.example.org"},` +
	`{"host":"db.example.org","ports":[5432],"protocol":"tcp"},{"host":"gone.example.org"},{"host":"inside.example.org"},{"host":"other.example.org"}],` +
	`"deny":["secret.wild.example.org"],"private":["192.0.2.1/32","192.0.2.2/32"]}`

// A world is an Internet, and a client of a supervisor whose jobs may reach some of it.
type world struct {
	*supervise.Front
	in *nettest.Internet
}

func newWorld(t *testing.T, change ...func(*isolate.Config)) *world {
	t.Helper()
	in := nettest.NewInternet(t)
	in.Name("web.example.org", "192.0.2.1")
	in.Name("deep.one.wild.example.org", "192.0.2.1")
	in.Name("secret.wild.example.org", "192.0.2.1")
	in.Name("db.example.org", "192.0.2.2")
	in.Name("inside.example.org", "127.0.0.1")
	in.Name("other.example.org", "192.0.2.1")
	in.Name("denied.example.net", "192.0.2.1")
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%s %s to %s over %s\n", r.Method, r.URL.Path, r.Host, r.Proto)
	})
	in.Serve("192.0.2.1:443", hello, "web.example.org", "*.one.wild.example.org", "secret.wild.example.org", "denied.example.net")
	in.Serve("192.0.2.1:80", hello)
	in.Serve("192.0.2.1:8443", hello, "web.example.org")
	echo(in.Listen("192.0.2.2:5432"))
	change = append([]func(*isolate.Config){func(c *isolate.Config) { c.Network = []byte(rules) }}, change...)
	f := supervise.New(t, change...)
	sandboxtest.Put(t, filepath.Join(f.Repo, "roots.pem"), string(in.Roots), 0o644, sandboxtest.Owner)
	return &world{f, in}
}

// echo sends back what it receives.
func echo(l net.Listener) {
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// sh runs a shell script in a job, with the roots of the Internet for curl.
func (w *world) sh(script string, change ...func(*job.Spec)) string {
	w.T.Helper()
	spec := w.Spec("sh", "-c", "exec 2>&1; "+script)
	spec.Env = append(spec.Env, "CURL_CA_BUNDLE="+w.Repo+"/roots.pem", "SSL_CERT_FILE="+w.Repo+"/roots.pem")
	for _, f := range change {
		f(&spec)
	}
	d := w.Run(spec)
	return d.Out
}
