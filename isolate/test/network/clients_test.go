package network

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // npm's registry has it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/fronttest"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/test/supervise"
	"corral/job"
)

// clientRules allow one domain, for every protocol of the clients.
const clientRules = `{"allow":[{"host":"*.example.org"},{"host":"*.example.org","protocol":"http"},{"host":"*.example.org","ports":[22,5432],"protocol":"tcp"}],` +
	`"private":["192.0.2.1/32"]}`

// A client is a program that uses the network, as its users call it: without a variable for a proxy.
type client struct {
	name, script string // the script gets a domain as $1
	want         string // part of the output
}

var clients = []client{
	{"curl", `curl -fsS https://web.$1/`, "hello over HTTP/2.0"},
	{"curl, HTTP/1.1", `curl -fsS --http1.1 https://web.$1/`, "hello over HTTP/1.1"},
	{"curl, without TLS", `curl -fsS http://web.$1/`, "hello over HTTP/1.1"},
	{"curl, many requests on a connection", `curl -fsS https://web.$1/1 https://web.$1/2 https://web.$1/3 | grep -c hello`, "3\n"},
	{"curl, large", `curl -fsS https://web.$1/large | wc -c`, "8388608\n"},
	{"curl, upload", `head -c 8388608 /dev/zero | curl -fsS -T - https://web.$1/count`, "8388608"},
	{"wget", `wget --ca-certificate=$ROOTS -qO- https://web.$1/`, "hello over HTTP/1.1"},
	{"git", `git clone -q https://web.$1/git/repo.git && cat repo/file`, "of the repository"},
	{"git, push", `git clone -q https://web.$1/git/repo.git mine && cd mine && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m second && git push -q origin HEAD:other && echo pushed`, "pushed"},
	{"npm", `cd "$(mktemp -d)" && echo '{}' >package.json && npm_config_cafile=$ROOTS npm_config_registry=https://web.$1/npm/ npm install --no-audit --no-fund demo && node -p "require('demo')"`, "of npm"},
	{"pnpm", `cd "$(mktemp -d)" && echo '{"dependencies":{"demo":"1.0.0"}}' >package.json && npm_config_cafile=$ROOTS npm_config_registry=https://web.$1/npm/ node PNPM install --store-dir=$PWD/store && node -p "require('demo')"`, "of npm"},
	{"pip", `pip3 install -q --no-cache-dir --disable-pip-version-check --target /tmp/pip --index-url https://web.$1/pypi/simple/ demo && PYTHONPATH=/tmp/pip python3 -c 'import demo; print(demo.text)'`, "of pypi"},
	{"cargo", `export HOME=/tmp/cargo RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_SPARSE_REGISTRY=true CARGO_REGISTRIES_TEST_INDEX=sparse+https://web.$1/cargo/ && mkdir -p $HOME/src && cd $HOME && touch src/lib.rs &&
		printf '[package]\nname = "x"\nversion = "1.0.0"\n[dependencies]\ndemo = { version = "1", registry = "test" }\n' >Cargo.toml && cargo fetch -q 2>&1 && find $HOME/.cargo/registry/src -name lib.rs | xargs cat`, "of crates"},
	{"apt-get", `d=$(mktemp -d) && mkdir -p $d/lists/partial $d/archives/partial $d/etc && echo "deb [trusted=yes] http://web.$1/apt ./" >$d/etc/sources.list && touch $d/status &&
		apt-get -o Dir::Etc=$d/etc -o Dir::State=$d -o Dir::State::status=$d/status -o Dir::Cache=$d -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Acquire::Languages=none update && grep -h Description $d/lists/*Packages`, "of apt"},
	{"Python, urllib", `python3 -c 'import sys, urllib.request as u; print(u.urlopen("https://web.%s/" % sys.argv[1]).read().decode())' $1`, "hello over HTTP/1.1"},
	{"Python, requests", `python3 -c 'import sys; from pip._vendor import requests; print(requests.get("https://web.%s/" % sys.argv[1]).text)' $1`, "hello over HTTP/1.1"},
	{"Node, fetch", `node -e 'fetch("https://web." + process.argv[1] + "/").then(r => r.text()).then(console.log)' $1`, "hello over HTTP/1.1"},
	{"Node, gRPC's frames", `node -e 'const c = require("http2").connect("https://web." + process.argv[1]); c.on("error", e => { console.log(e.code); process.exit(1) });
		const s = c.request({":method": "POST", ":path": "/grpc", "content-type": "application/grpc", te: "trailers"}); s.on("trailers", t => console.log("status", t["grpc-status"])); s.on("end", () => c.close()); s.end("x"); s.resume()' $1`, "status 0"},
	{"Java", `cat >/tmp/A.java <<'J'
import java.net.*; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers; import java.security.*; import java.security.cert.*; import java.io.*; import javax.net.ssl.*;
class A { public static void main(String[] a) throws Exception {
	KeyStore k = KeyStore.getInstance(KeyStore.getDefaultType()); k.load(null); k.setCertificateEntry("x", CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(System.getenv("ROOTS"))));
	TrustManagerFactory f = TrustManagerFactory.getInstance("PKIX"); f.init(k); SSLContext c = SSLContext.getInstance("TLS"); c.init(null, f.getTrustManagers(), null);
	System.out.println(HttpClient.newBuilder().sslContext(c).build().send(HttpRequest.newBuilder(URI.create("https://web." + a[0] + "/")).build(), BodyHandlers.ofString()).body()); } }
J
java -XX:TieredStopAtLevel=1 /tmp/A.java $1`, "hello over HTTP/2.0"},
	{"Ruby", `ruby -ropen-uri -e 'puts URI.open("https://web.#{ARGV[0]}/").read' $1`, "hello over HTTP/1.1"},
	{"PHP", `php -r 'echo file_get_contents("https://web.$argv[1]/") ?: exit(1);' $1`, "hello over HTTP/1.1"},
	{"Perl, TCP", `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("web.$ARGV[0]:5432") or die "$@"; print "connected\n"' $1`, "connected"},
	{"WebSocket", `node -e 'const name = "web." + process.argv[1], s = require("tls").connect(443, name, { servername: name }, () =>
		s.write("GET /ws HTTP/1.1\r\nHost: " + name + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")); let n = 0;
		s.on("data", d => { if (n++ == 0 && /^HTTP\/1.1 101 /.test(d)) s.write("a frame"); else { console.log(String(d)); s.end() } }); s.on("error", e => console.log(e.code))' $1`, "a frame"},
	{"psql", `psql -w "host=web.$1 user=a dbname=b sslmode=disable connect_timeout=9" -c 'select 1' 2>&1 || true`, "an answer of the database"},
	{"ssh", `ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -v web.$1 true 2>&1 || true`, "remote software version test"},
}

// TestClients: every client reaches what is allowed, and fails with its own error for what is not.
func TestClients(t *testing.T) {
	in := nettest.NewInternet(t)
	in.Name("web.example.org", "192.0.2.1")
	in.Name("web.example.net", "192.0.2.1")
	reached := &canaries{}
	h := hosts(t)
	in.Serve("192.0.2.1:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, _ := strings.Cut(r.Host, ":"); !strings.HasSuffix(host, ".example.org") {
			reached.note("%s", r.Host)
		}
		h.ServeHTTP(w, r)
	}), "web.example.org", "web.example.net")
	in.Serve("192.0.2.1:80", h)
	const failure = "SFATAL\x00C28000\x00Man answer of the database\x00\x00"
	greet(in.Listen("192.0.2.1:22"), "SSH-2.0-test\r\n", "")
	greet(in.Listen("192.0.2.1:5432"), "", string(binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(failure))))+failure)
	f := supervise.New(t, func(c *isolate.Config) { c.Network, c.Toolchains = []byte(clientRules), []string{pnpm(t)} })
	roots := filepath.Join(f.Repo, "roots.pem")
	sandboxtest.Put(t, roots, string(in.Roots), 0o644, sandboxtest.Owner)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			for domain, allowed := range map[string]bool{"example.org": true, "example.net": false} {
				began := time.Now()
				d := runClient(t, f, c.scriptFor(t), domain, roots)
				if got := strings.Contains(d.Out, c.want); got != allowed {
					t.Errorf("%s, after %v: %s%s", domain, time.Since(began), d.Out, d.Err)
				}
			}
			for _, what := range reached.take() {
				t.Errorf("it reached %s", what)
			}
		})
	}
}

// pnpm returns the directory of pnpm, as scripts/setup-clients installs it.
func pnpm(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(sandboxtest.ModuleRoot(t), ".cache/clients/node_modules/pnpm")
	sandboxtest.Require(t, func() error {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("%w; run: scripts/setup-clients", err)
		}
		return nil
	})
	return dir
}

// scriptFor returns the script for this machine.
func (c client) scriptFor(t *testing.T) string {
	return strings.ReplaceAll(c.script, "PNPM", pnpm(t)+"/bin/pnpm.cjs")
}

func runClient(t *testing.T, f *supervise.Front, script, domain, roots string) fronttest.Did {
	t.Helper()
	spec := f.Spec("sh", "-c", "cd $(mktemp -d) && "+script, "sh", domain)
	spec.Env = append(spec.Env, "HOME=/home/job", "ROOTS="+roots, "npm_config_fetch_retries=0") // as corral's tools have it
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO", "GIT_SSL_CAINFO"} {
		spec.Env = append(spec.Env, name+"="+roots)
	}
	spec.Limits = job.Limits{Wall: 2 * time.Minute, Memory: 4 << 30, PIDs: 512}
	return f.With(t, f.C, f.Repo).Run(spec)
}

// greet sends a greeting to whoever connects, then what it answers to the first bytes, and closes the connection if that is "".
func greet(l net.Listener, greeting, answer string) {
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, greeting)
				if _, err := conn.Read(make([]byte, 512)); err == nil && answer != "" {
					_, _ = io.WriteString(conn, answer)
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
}

// hosts serves what the clients ask for.
func hosts(t *testing.T) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "hello over %s\n", r.Proto) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<20)) })
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintln(w, n)
	})
	mux.HandleFunc("/grpc", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("Grpc-Status", "0")
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(conn, both)
	})
	serveGit(t, mux)
	serveNPM(mux)
	servePyPI(t, mux)
	serveCargo(mux)
	serveAPT(mux)
	return mux
}

func serveGit(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	dir := t.TempDir()
	fronttest.Shell(t, dir, `git init -q -b main work && cd work && echo of the repository >file && git add file &&
		git -c user.name=a -c user.email=a@example.org commit -q -m first && git clone -q --bare . ../repo.git && git -C ../repo.git config http.receivepack true`)
	mux.Handle("/git/", &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Root: "/git", Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"},
	})
}

// tarball returns files as a compressed archive.
func tarball(files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		_ = w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644})
		_, _ = io.WriteString(w, text)
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}

func serveNPM(mux *http.ServeMux) {
	pack := tarball(map[string]string{"package/package.json": `{"name":"demo","version":"1.0.0"}`, "package/index.js": `module.exports = "of npm"`})
	long, short := sha512.Sum512(pack), sha1.Sum(pack) //nolint:gosec // see above
	mux.HandleFunc("/npm/demo", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "demo", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{"name": "demo", "version": "1.0.0", "dist": map[string]string{
				"tarball": "https://" + r.Host + "/npm/demo-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:]), "shasum": fmt.Sprintf("%x", short),
			}}},
		})
	})
	mux.HandleFunc("/npm/demo-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pack) })
}

func servePyPI(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"demo.py": "text = 'of pypi'\n", "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "demo-1.0.dist-info/RECORD": "demo.py,,\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	_ = z.Close()
	wheel := b.Bytes()
	mux.HandleFunc("/pypi/simple/demo/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<a href="../../demo-1.0-py3-none-any.whl#sha256=%x">demo</a>`, sha256.Sum256(wheel))
	})
	mux.HandleFunc("/pypi/demo-1.0-py3-none-any.whl", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
}

func serveCargo(mux *http.ServeMux) {
	crate := tarball(map[string]string{
		"demo-1.0.0/Cargo.toml": "[package]\nname = \"demo\"\nversion = \"1.0.0\"\n", "demo-1.0.0/src/lib.rs": "// of crates\n",
	})
	mux.HandleFunc("/cargo/config.json", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"dl":"https://%s/cargo/crates"}`, r.Host)
	})
	mux.HandleFunc("/cargo/de/mo/demo", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"name":"demo","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(crate))
	})
	mux.HandleFunc("/cargo/crates/demo/1.0.0/download", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(crate) })
}

func serveAPT(mux *http.ServeMux) {
	mux.HandleFunc("/apt/./Packages", servePackages)
	mux.HandleFunc("/apt/Packages", servePackages)
	mux.HandleFunc("/apt/", http.NotFound)
}

func servePackages(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "Package: demo\nVersion: 1.0\nArchitecture: all\nDescription: of apt\nFilename: ./demo.deb\nSize: 1\n\n")
}
