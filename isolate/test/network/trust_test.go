package network

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	issuer "corral/egress/authority"
	"corral/egress/relay"
	"corral/internal/test/fronttest"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/test/supervise"
	"corral/isolate/trust"
	"corral/job"
	"corral/store/authority"
)

// endedRules are about requests, so that the TLS connections of all clients are ended.
const endedRules = `{"allow":[{"host":"*.example.org","methods":["GET","HEAD","POST","PUT"]}],"private":["192.0.2.1/32"]}`

// ended are clients as their users call them, without an option or a variable that says whom to trust. The others are in clients.
var ended = []client{
	{"git, push", `git clone -q https://web.$1/git/repo.git mine && cd mine && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m second && git push -q origin HEAD:$(mktemp -u XXXXXX) && echo pushed`, "pushed"},
	{"apt-get, with TLS", `d=$(mktemp -d) && mkdir -p $d/lists/partial $d/archives/partial $d/etc && echo "deb [trusted=yes] https://web.$1/apt sub/" >$d/etc/sources.list && touch $d/status &&
		apt-get -o Dir::Etc=$d/etc -o Dir::State=$d -o Dir::State::status=$d/status -o Dir::Cache=$d -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Acquire::Languages=none update && grep -h Description $d/lists/*Packages`, "of apt"},
	{"wget", `wget -qO- https://web.$1/`, "hello over HTTP/1.1"},
	{"npm", `cd "$(mktemp -d)" && echo '{}' >package.json && npm_config_registry=https://web.$1/npm/ npm install --no-audit --no-fund demo && node -p "require('demo')"`, "of npm"},
	{"pnpm", `echo '{"dependencies":{"demo":"1.0.0"}}' >package.json && npm_config_registry=https://web.$1/npm/ node PNPM install --store-dir=$PWD/store && node -p "require('demo')"`, "of npm"},
	{"go", `export GOPATH=$PWD/go GOFLAGS=-modcacherw GOCACHE=$PWD/cache GOSUMDB=off GOTOOLCHAIN=local GOPROXY=https://web.$1/go PATH=$PATH:/usr/local/go/bin && printf 'module x\nrequire example.org/demo v1.0.0\n' >go.mod &&
		go mod download example.org/demo && cat go/pkg/mod/example.org/demo@v1.0.0/demo.go`, "of go"},
	{"Java", `cat >A.java <<'J'
import java.net.*; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers;
class A { public static void main(String[] a) throws Exception {
	System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("https://web." + a[0] + "/")).build(), BodyHandlers.ofString()).body()); } }
J
java -XX:TieredStopAtLevel=1 A.java $1`, "hello over HTTP/2.0"},
	{"OpenSSL's directory", `env -i PATH=$PATH openssl s_client -verify_return_error -CApath /etc/ssl/certs -no-CAfile -connect web.$1:443 -servername web.$1 </dev/null 2>&1 | grep -a 'Verify return code\|corral'`, "Verify return code: 0 (ok)"},
	{"a cleared environment", `env -i PATH=$PATH python3 -c 'import sys, urllib.request as u; print(u.urlopen("https://web.%s/" % sys.argv[1]).read().decode())' $1`, "hello over HTTP/1.1"},
	{"a store of the client's own", `python3 -c 'import os, ssl, sys, urllib.request as u; c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.load_verify_locations(os.environ["REQUESTS_CA_BUNDLE"]); print(u.urlopen("https://web.%s/" % sys.argv[1], context=c).read().decode())' $1`, "hello over HTTP/1.1"},
}

// unended are those in clients that use no TLS, or for which there is another in ended.
var unended = []string{"git, push", "wget", "npm", "pnpm", "Java", "curl, without TLS", "apt-get", "Perl, TCP", "psql", "ssh"}

// someEnded are the clients that run in a session with a root of its own, too: one for each kind of store.
var someEnded = []string{"curl", "git", "npm", "go", "Java", "Python, urllib", "Python, requests", "Node, fetch", "OpenSSL's directory", "a cleared environment"}

// endedClients returns all clients whose TLS connections can be ended.
func endedClients() []client {
	list := slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return slices.Contains(unended, c.name) })
	list = append(list, ended...)
	for n := range list {
		if strings.HasPrefix(list[n].want, "hello") {
			list[n].want = "hello over HTTP/" // in which version the host is asked is not the client's business
		}
	}
	return list
}

// trusting makes a supervisor with rules about requests, and returns the certificate in PEM of the authority that it makes for the first job.
func trusting(t *testing.T) (*supervise.Front, []byte) {
	t.Helper()
	f := supervise.New(t, func(c *isolate.Config) {
		c.Network, c.Requests, c.Toolchains = []byte(endedRules), &admit.Requests{}, []string{pnpm(t)}
		again := *c
		c.Again = func() (isolate.Config, error) { return again, nil }
	})
	f.Sh("true")
	return f, certificateOf(t, f)
}

// certificateOf returns the certificate of a supervisor's authority, in PEM.
func certificateOf(t *testing.T, f *supervise.Front) []byte {
	t.Helper()
	certificate, err := os.ReadFile(filepath.Join(f.State, "authority", strconv.Itoa(sandboxtest.Owner), "certificate.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// newEnded makes an Internet for clients whose TLS connections are ended. Hosts of it are trusted by what connects to them.
func newEnded(t *testing.T) {
	t.Helper()
	in := nettest.NewInternet(t)
	in.Trust(t)
	in.Name("web.example.org", "192.0.2.1")
	mux := http.NewServeMux()
	mux.Handle("/", hosts(t))
	serveGo(t, mux)
	mux.HandleFunc("/apt/sub/Packages", servePackages) // apt-get asks for ./Packages without a directory: servers read it in different ways
	in.Serve("192.0.2.1:443", mux, "web.example.org")
}

// TestEndedClients: every client trusts the certificates with which its TLS connections are ended, without being told: in a job without a
// session, in a session whose jobs share their files, and in one with a root of its own. In the latter, those of someEnded run, and in the
// former one of them, because jobs of all three have the same files and variables, which is tested, too. In a soak, all run in the former.
func TestEndedClients(t *testing.T) {
	newEnded(t)
	f, _ := trusting(t)
	shared := f.Session(job.SessionSpec{Workspace: job.Overlay, Share: true})
	rooted := f.Session(job.SessionSpec{Workspace: job.Overlay, Root: true})
	const trusted = `env | grep -E '=(/var/door|/etc/ssl)' | sort; ls /etc/ssl/certs; cat /var/door/*.* /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/java/cacerts | cksum`
	want := f.Run(f.Spec("sh", "-c", trusted)).Out
	for way, ss := range map[string]job.Session{"session": shared, "root": rooted} {
		if got := f.In(ss, trusted).Out; got != want || strings.Count(want, "\n") < 10 {
			t.Errorf("%s: %q, in a job %q", way, got, want)
		}
	}
	for _, c := range endedClients() {
		t.Run(c.name, func(t *testing.T) {
			ways := map[string]job.Session{"job": {}}
			if c.name == someEnded[0] || sandboxtest.Soak() {
				ways["session"] = shared
			}
			if slices.Contains(someEnded, c.name) {
				ways["root"] = rooted
			}
			for way, ss := range ways {
				spec := f.Spec("sh", "-c", "cd $(mktemp -d) && "+c.scriptFor(t), "sh", "example.org")
				spec.Env = append(slices.Clone(spec.Env), "HOME=/home/job", "npm_config_fetch_retries=0")
				spec.Session, spec.Workspace = ss.ID, ss.Workspace
				spec.Limits = job.Limits{Wall: 2 * time.Minute, Memory: 4 << 30, PIDs: 512}
				began := time.Now()
				if d := f.With(t, f.C, f.Repo).Run(spec); !strings.Contains(d.Out, c.want) {
					t.Errorf("%s, after %v: %s%s", way, time.Since(began), d.Out, d.Err)
				}
			}
		})
	}
}

// TestEnded: what the clients above reached had its TLS ended, and who does not trust the authority reaches nothing.
func TestEnded(t *testing.T) {
	newEnded(t)
	f, certificate := trusting(t)
	host, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt") // trusts the host's certificate itself
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Put(t, filepath.Join(f.Repo, "host.pem"), string(host), 0o644, sandboxtest.Owner)
	if got := f.Sh("curl -sS https://web.example.org/"); got != "hello over HTTP/2.0" {
		t.Errorf("%q", got)
	}
	got := f.Sh("curl -sS --cacert host.pem --capath /var/empty https://web.example.org/ || echo $?; cat " + trust.AuthorityFile)
	if !strings.HasPrefix(got, "60\n") || !strings.HasSuffix(got, strings.TrimSpace(string(certificate))) {
		t.Errorf("%q", got)
	}
}

// TestTrustedOnlyWithDoor: a job without network access neither trusts the authority nor is told of it, and what a request sets stays.
func TestTrustedOnlyWithDoor(t *testing.T) {
	newEnded(t)
	f, certificate := trusting(t)
	block, _ := pem.Decode(certificate)
	const script = `env | grep -c /var/door; grep -c "$1" /etc/ssl/certs/ca-certificates.crt; ls /var/door; ls /etc/ssl/certs | wc -l; cksum </etc/ssl/certs/java/cacerts; echo "${SSL_CERT_FILE-unset} ${DENO_CERT-unset}"`
	lines := strings.Split(string(pem.EncodeToMemory(block)), "\n")
	ask := func(network string, env ...string) []string {
		t.Helper()
		spec := f.Spec("sh", "-c", script, "sh", lines[1])
		spec.Network, spec.Env = network, append(slices.Clone(spec.Env), env...)
		return strings.Split(f.Run(spec).Out, "\n")
	}
	without, with := ask(job.NoNetwork), ask("", "SSL_CERT_FILE=mine", "DENO_CERT=")
	if without[0] != "0" || without[1] != "0" || slices.Contains(without, "authority.pem") || without[len(without)-2] != "unset unset" {
		t.Errorf("without network access: %q", without)
	}
	if with[1] != "1" || !slices.Contains(with, "authority.pem") || with[len(with)-2] != "mine " || with[0] != "3" {
		t.Errorf("with network access: %q", with)
	}
	plain := supervise.New(t, func(c *isolate.Config) { c.Network = []byte(endedRules) })
	spec := plain.Spec("sh", "-c", script, "sh", lines[1])
	spec.Network = job.NoNetwork
	if got := strings.Split(plain.Run(spec).Out, "\n"); !slices.Equal(got, without) {
		t.Errorf("without an authority %q, with one %q", got, without)
	}
}

// TestAuthoritiesOfUsers: what the process of a user signs is trusted in jails of that user alone, also by an attacker who took it over
// and has its key.
func TestAuthoritiesOfUsers(t *testing.T) {
	newEnded(t)
	const other = sandboxtest.Owner + 1
	f, _ := trusting(t)
	repo := filepath.Join(t.TempDir(), "repo")
	sandboxtest.Mkdir(t, repo, other)
	fronts := map[uint32]*supervise.Front{sandboxtest.Owner: f, other: f.With(t, f.Connect(host.Peer{UID: other}), repo)}
	if got := fronts[other].Sh("curl -sS https://web.example.org/"); got != "hello over HTTP/2.0" {
		t.Fatalf("%q", got)
	}
	keys := authority.New(filepath.Join(f.State, "authority"))
	for uid, in := range fronts {
		for signer := range fronts {
			a, err := keys.Current(signer)
			if err != nil {
				t.Fatal(err)
			}
			stolen, err := issuer.Parse(a.Control.Certificate, a.Control.Key)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := relay.NewIssuer(stolen).Leaf("web.example.org")
			if err != nil {
				t.Fatal(err)
			}
			encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Leaf.Raw})
			sandboxtest.Put(t, filepath.Join(in.Repo, "leaf.pem"), string(encoded), 0o644, int(uid))
			d := in.Run(in.Spec("sh", "-c", `openssl verify -verify_hostname web.example.org leaf.pem 2>&1`))
			if trusted := strings.Contains(d.Out, "leaf.pem: OK"); trusted != (uid == signer) || !trusted && !strings.Contains(d.Out, "unable to get local issuer") {
				t.Errorf("signed for jobs of %d, in a jail of %d: %s%s", signer, uid, d.Out, d.Err)
			}
		}
	}
}

// TestRotation: after a rotation, jobs trust the new authority, and those of a session the one that its jail has. Both reach the host.
func TestRotation(t *testing.T) {
	newEnded(t)
	f, before := trusting(t)
	const script = "curl -sS https://web.example.org/ && cat " + trust.AuthorityFile
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay, Share: true})
	if n, err := authority.Rotate(filepath.Join(f.State, "authority")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := f.S.Reload(); err != nil {
		t.Fatal(err)
	}
	after := certificateOf(t, f)
	if slices.Equal(before, after) {
		t.Fatal("the authority was not replaced")
	}
	const hello = "hello over HTTP/2.0\n"
	if got := f.Must(ss, script); got != hello+string(before) {
		t.Errorf("the session: %q", got)
	}
	if d := f.Run(f.Spec("sh", "-c", script)); d.Out != hello+string(after) {
		t.Errorf("a job: %q %s", d.Out, d.Err)
	}
}

// TestImportedRoot: in a session with an imported root file system, the files for the authority are merged over those of the root file
// system. What links in that lead to stays as it is.
func TestImportedRoot(t *testing.T) {
	newEnded(t)
	f, certificate := trusting(t)
	root := f.With(t, f.Connect(host.Peer{}), t.TempDir())
	ctx := t.Context()
	ss, err := root.C.OpenSession(ctx, job.SessionSpec{Import: "mine", Disk: fronttest.Small})
	if err != nil {
		t.Fatal(err)
	}
	spec := root.Spec("unpack", "/image")
	spec.Repo, spec.Session, spec.Tool = "", ss.ID, job.ToolUnpack
	if d := root.Feed(spec, fronttest.Archive(t, map[string]string{
		"etc/pki/tls/certs/ca-bundle.crt": "../../../marker", "etc/ssl": "/usr", "var/door": "/etc",
	})); d.ExitCode != 0 {
		t.Fatalf("%+v %s%s", d.Result, d.Out, d.Err)
	}
	if kept, err := root.C.CloseSession(ctx, ss.ID, true); err != nil || !kept {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	line := strings.Split(string(certificate), "\n")[2]
	const script = `has() { while read -r l; do [ "$l" = "$line" ] && echo "$1"; done <"$1"; }
		has /etc/pki/tls/certs/ca-bundle.crt; has "$SSL_CERT_FILE"; has "$NODE_EXTRA_CA_CERTS"; has /etc/marker; read x </etc/marker; echo $x; [ -e /etc/ssl/certs ] || echo none`
	in := f.Session(job.SessionSpec{Root: true, Image: "mine"})
	for range 2 {
		want := "/etc/pki/tls/certs/ca-bundle.crt\n" + trust.BundleFile + "\n" + trust.AuthorityFile + "\nfrom the image\nnone\n"
		if d := f.In(in, "line='"+line+"'; "+script); d.Out != want {
			t.Errorf("%q %s, want %q", d.Out, d.Err, want)
		}
	}
	without := f.Session(job.SessionSpec{Root: true, Image: "mine", Network: job.NoNetwork})
	if d := f.In(without, "echo ${SSL_CERT_FILE-unset}; read x </etc/pki/tls/certs/ca-bundle.crt; echo $x"); d.Out != "unset\nfrom the image\n" {
		t.Errorf("without network access: %q %s", d.Out, d.Err)
	}
	f.CloseSession(in, false)
	f.CloseSession(without, false)
	if err := root.C.RemoveImage(ctx, "mine"); err != nil {
		t.Error(err)
	}
}

// serveGo serves a module.
func serveGo(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const base, mod = "example.org/demo@v1.0.0/", "module example.org/demo\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{"go.mod": mod, "demo.go": "package demo // of go\n"} {
		w, err := z.Create(base + name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": "v1.0.0\n", "v1.0.0.info": `{"Version":"v1.0.0"}`, "v1.0.0.mod": mod, "v1.0.0.zip": b.String(),
	} {
		mux.HandleFunc("/go/example.org/demo/@v/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
}
