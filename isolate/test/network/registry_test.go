package network

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // what old packages of npm have
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/internal/test/fronttest"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/test/supervise"
	"corral/job"
	"corral/store/volume"
)

// registryRules have a rule for each kind of registry. WHEN is a minimum age or nothing.
const registryRules = `{"allow":[{"host":"npm.example.org","registry":"npm"WHEN},{"host":"*.py.example.org","registry":"pypi"WHEN},` +
	`{"host":"*.rs.example.org","registry":"cargo"WHEN},{"host":"*.go.example.org","registry":"go"WHEN},` +
	`{"host":"deb.example.org","protocol":"http","registry":"debian"}],"private":["192.0.2.1/32"]}`

// week is a minimum age as rules have it in JSON.
const week = `,"min_age":604800000000000`

// A mall has a registry of each kind, each with a version 1.0.0 that is old and a version 2.0.0 that is young.
type mall struct {
	*supervise.Front
	in  *nettest.Internet
	off atomic.Bool
	key string // of the checksum database
}

var mallHosts = []string{
	"npm.example.org", "index.py.example.org", "files.py.example.org", "index.rs.example.org", "static.rs.example.org", "proxy.go.example.org", "deb.example.org",
}

// newMall makes the registries, and a supervisor whose jobs may get packages of them.
func newMall(t *testing.T, when string, change ...func(*isolate.Config)) *mall {
	t.Helper()
	m := &mall{in: nettest.NewInternet(t)}
	m.in.Trust(t)
	mux := http.NewServeMux()
	m.serveNPM(mux)
	m.servePyPI(t, mux)
	m.serveCargo(mux)
	m.serveGo(t, mux)
	m.serveDebian(t, mux)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An archive that is not signed has no InRelease and Release.gpg. apt-get goes on only when it was told so.
		if m.off.Load() && !strings.HasSuffix(r.URL.Path, "/InRelease") && !strings.HasSuffix(r.URL.Path, "/Release.gpg") {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	})
	for _, name := range mallHosts {
		m.in.Name(name, "192.0.2.1")
	}
	m.in.Serve("192.0.2.1:443", handler, mallHosts...)
	m.in.Serve("192.0.2.1:80", handler)
	change = append([]func(*isolate.Config){func(c *isolate.Config) {
		c.Network = []byte(strings.ReplaceAll(registryRules, "WHEN", when))
		c.Requests = &admit.Requests{Keep: 64 << 20}
	}}, change...)
	m.Front = supervise.New(t, change...)
	return m
}

// published returns when a version was published.
func published(version string) string {
	days := 30
	if version == "2.0.0" {
		days = 2
	}
	return time.Now().Add(-time.Duration(days) * 24 * time.Hour).UTC().Format(time.RFC3339)
}

var versions = []string{"1.0.0", "2.0.0"}

// file serves a content.
func file(mux *http.ServeMux, pattern string, content []byte) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
}

func (m *mall) serveNPM(mux *http.ServeMux) {
	about, times := map[string]any{}, map[string]string{}
	for _, v := range versions {
		pack := tarball(map[string]string{"package/package.json": `{"name":"demo","version":"` + v + `"}`, "package/index.js": `module.exports = "npm ` + v + `"`})
		sum := sha512.Sum512(pack)
		about[v], times[v] = map[string]any{"name": "demo", "version": v, "dist": map[string]string{
			"tarball": "https://npm.example.org/demo/-/demo-" + v + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}, published(v)
		file(mux, "npm.example.org/demo/-/demo-"+v+".tgz", pack)
	}
	mux.HandleFunc("npm.example.org/demo", func(w http.ResponseWriter, r *http.Request) {
		index := map[string]any{"name": "demo", "dist-tags": map[string]string{"latest": "2.0.0"}, "versions": about}
		w.Header().Set("Content-Type", "application/vnd.npm.install-v1+json")
		if !strings.Contains(r.Header.Get("Accept"), "install-v1") { // the long form, which alone has times
			w.Header().Set("Content-Type", "application/json")
			index["time"] = times
		}
		_ = json.NewEncoder(w).Encode(index)
	})
}

func (m *mall) servePyPI(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	var files []any
	for _, v := range versions {
		wheel := zipped(t, map[string]string{
			"demo.py": "text = 'pypi " + v + "'\n", "demo-" + v + ".dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: " + v + "\n",
			"demo-" + v + ".dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "demo-" + v + ".dist-info/RECORD": "demo.py,,\n",
		})
		name := "demo-" + v + "-py3-none-any.whl"
		files = append(files, map[string]any{
			"filename": name, "url": "https://files.py.example.org/" + name, "hashes": map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(wheel))},
			"upload-time": published(v),
		})
		file(mux, "files.py.example.org/"+name, wheel)
	}
	mux.HandleFunc("index.py.example.org/simple/demo/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"meta": map[string]string{"api-version": "1.1"}, "name": "demo", "versions": versions, "files": files})
	})
}

func (m *mall) serveCargo(mux *http.ServeMux) {
	var lines bytes.Buffer
	for _, v := range versions {
		crate := tarball(map[string]string{
			"demo-" + v + "/Cargo.toml": "[package]\nname = \"demo\"\nversion = \"" + v + "\"\n", "demo-" + v + "/src/lib.rs": "// cargo " + v + "\n",
		})
		_, _ = fmt.Fprintf(&lines, `{"name":"demo","vers":%q,"deps":[],"cksum":"%x","features":{},"yanked":false,"pubtime":%q}`+"\n", v, sha256.Sum256(crate), published(v))
		file(mux, "static.rs.example.org/crates/demo/"+v+"/download", crate)
	}
	mux.HandleFunc("index.rs.example.org/config.json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"dl":"https://static.rs.example.org/crates"}`)
	})
	mux.HandleFunc("index.rs.example.org/de/mo/demo", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(lines.Bytes()) })
}

// serveGo serves modules, and a checksum database through the proxy.
func (m *mall) serveGo(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const base = "proxy.go.example.org/example.org/demo/@v/"
	sums := map[string]string{}
	for _, v := range []string{"v1.0.0", "v1.1.0"} {
		const mod = "module example.org/demo\n"
		z := zipped(t, map[string]string{"example.org/demo@" + v + "/go.mod": mod, "example.org/demo@" + v + "/demo.go": "package demo // go " + v + "\n"})
		path := filepath.Join(t.TempDir(), "zip")
		if err := os.WriteFile(path, z, 0o600); err != nil {
			t.Fatal(err)
		}
		ofZip, err := dirhash.HashZip(path, dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(mod)), nil })
		if err != nil {
			t.Fatal(err)
		}
		sums[v] = fmt.Sprintf("example.org/demo %s %s\nexample.org/demo %s/go.mod %s\n", v, ofZip, v, ofMod)
		file(mux, base+v+".zip", z)
		mux.HandleFunc(base+v+".mod", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, mod) })
		at := published(map[string]string{"v1.0.0": "1.0.0", "v1.1.0": "2.0.0"}[v])
		mux.HandleFunc(base+v+".info", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"Version":%q,"Time":%q}`, v, at)
		})
	}
	mux.HandleFunc(base+"list", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "v1.0.0\nv1.1.0\n") })
	private, public, err := note.GenerateKey(rand.Reader, "sum.example.org")
	if err != nil {
		t.Fatal(err)
	}
	m.key = public
	database := sumdb.NewServer(sumdb.NewTestServer(private, func(_, version string) ([]byte, error) { return []byte(sums[version]), nil }))
	const at = "/sumdb/sum.example.org"
	mux.HandleFunc("proxy.go.example.org"+at+"/supported", func(http.ResponseWriter, *http.Request) {})
	for _, path := range sumdb.ServerPaths {
		mux.Handle("proxy.go.example.org"+at+path, http.StripPrefix(at, database))
	}
}

func (m *mall) serveDebian(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const deb, dist = "a package of Debian", "deb.example.org/debian/dists/stable/"
	packages := []byte(fmt.Sprintf("Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: a\nDescription: of apt\nFilename: pool/main/d/demo_1.0_all.deb\nSize: %d\nSHA256: %x\n\n",
		len(deb), sha256.Sum256([]byte(deb))))
	xz := fronttest.Shell(t, t.TempDir(), "cat <<'E' | xz -c | base64\n"+string(packages)+"E\n")
	list, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(xz, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	release := fmt.Sprintf("Origin: test\nSuite: stable\nCodename: stable\nDate: %s\nAcquire-By-Hash: yes\nArchitectures: amd64 all\nComponents: main\nSHA256:\n",
		time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC"))
	for _, arch := range []string{"amd64", "all"} {
		for name, content := range map[string][]byte{"Packages": packages, "Packages.xz": list} {
			release += fmt.Sprintf(" %x %d main/binary-%s/%s\n", sha256.Sum256(content), len(content), arch, name)
			path := dist + "main/binary-" + arch + "/"
			for _, p := range []string{path + name, path + fmt.Sprintf("by-hash/SHA256/%x", sha256.Sum256(content))} {
				mux.HandleFunc(p, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
			}
		}
	}
	mux.HandleFunc(dist+"Release", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, release) })
	file(mux, "deb.example.org/debian/pool/main/d/demo_1.0_all.deb", []byte(deb))
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An installer gets a package of a registry, as its users call it. $KEY is the key of the checksum database.
type installer struct {
	name, script string
	young, old   string // what it prints without and with a minimum age
}

var installers = []installer{
	{"npm", `echo '{}' >package.json && npm_config_registry=https://npm.example.org/ npm install --no-audit --no-fund demo && node -p "require('demo')"`, "npm 2.0.0", "npm 1.0.0"},
	{"pip", `pip3 install -q --no-cache-dir --disable-pip-version-check --retries 0 --target lib --index-url https://index.py.example.org/simple/ demo && PYTHONPATH=lib python3 -c 'import demo; print(demo.text)'`, "pypi 2.0.0", "pypi 1.0.0"},
	{"cargo", `export HOME=$PWD RUSTC_BOOTSTRAP=1 CARGO_NET_RETRY=0 CARGO_UNSTABLE_SPARSE_REGISTRY=true CARGO_REGISTRIES_TEST_INDEX=sparse+https://index.rs.example.org/ && mkdir src && touch src/lib.rs &&
		printf '[package]\nname = "x"\nversion = "1.0.0"\n[dependencies]\ndemo = { version = ">=1", registry = "test" }\n' >Cargo.toml && cargo fetch -q 2>&1 && find .cargo/registry/src -name lib.rs | xargs cat`, "cargo 2.0.0", "cargo 1.0.0"},
	{"go", `export GOPATH=$PWD/go GOFLAGS=-modcacherw GOCACHE=$PWD/cache GOSUMDB=$KEY GOPROXY=https://proxy.go.example.org PATH=$PATH:/usr/local/go/bin && printf 'module x\n' >go.mod &&
		go get example.org/demo && cat go/pkg/mod/example.org/demo@*/demo.go && cat go.sum`, "go v1.1.0", "go v1.0.0"},
	{"apt-get", `d=$PWD && mkdir -p $d/lists/partial $d/archives/partial $d/etc && echo "deb [trusted=yes arch=amd64] http://deb.example.org/debian stable main" >$d/etc/sources.list && touch $d/status &&
		cat >apt.conf <<E
Dir::Etc "$d/etc"; Dir::State "$d"; Dir::State::status "$d/status"; Dir::Cache "$d"; Debug::NoLocking "1"; APT::Sandbox::User ""; Acquire::Languages "none"; APT::Architecture "amd64";
E
		export APT_CONFIG=$d/apt.conf && apt-get update && apt-get download demo && cat *.deb`, "a package of Debian", "a package of Debian"},
}

func (m *mall) install(f *fronttest.Front, script string) fronttest.Did {
	spec := f.Spec("sh", "-c", "cd $(mktemp -d) && "+script)
	spec.Env = append(slices.Clone(spec.Env), "HOME=/home/job", "npm_config_fetch_retries=0", "KEY="+m.key)
	spec.Limits = job.Limits{Wall: 2 * time.Minute, Memory: 4 << 30, PIDs: 512}
	return f.Run(spec)
}

// again returns the first front of m, for a subtest.
func (m *mall) again(t *testing.T) *fronttest.Front { return m.With(t, m.C, m.Repo).Front }

// TestRegistries: what a job of a user got of a registry, the next one gets while all registries are off, and another user does not.
func TestRegistries(t *testing.T) {
	m := newMall(t, "")
	root := m.With(t, m.Connect(host.Peer{}), t.TempDir())
	for _, i := range installers {
		t.Run(i.name, func(t *testing.T) {
			for _, off := range []bool{false, true} {
				m.off.Store(off)
				if d := m.install(m.again(t), i.script); !strings.Contains(d.Out, i.young) {
					t.Errorf("off: %v: %s%s", off, d.Out, d.Err)
				}
			}
			if d := m.install(root.With(t, root.C, root.Repo).Front, i.script); strings.Contains(d.Out, i.young) {
				t.Errorf("another user got it: %s", d.Out)
			}
		})
	}
	if list := kept(t, m.State, sandboxtest.Owner); len(list) < 15 {
		t.Errorf("%q", list)
	}
	if got := m.Sh("ls " + m.State + " /var/lib/corral 2>&1; find / -name entries -path '*cache*' 2>/dev/null; true"); strings.Contains(got, "entries") || strings.Contains(got, "cache\n") {
		t.Errorf("a job sees %s", got)
	}
}

// TestRegistryMemory: a job that requests large indexes at once, of a registry that makes them as costly as it can, does not end the process
// that reads them, under the limit of its cgroup. Requests for other packages are answered meanwhile.
func TestRegistryMemory(t *testing.T) {
	in := nettest.NewInternet(t)
	in.Trust(t)
	in.Name("npm.example.org", "192.0.2.1")
	bodies := map[string][]byte{}
	for name, size := range map[string]int{"large": 60 << 20, "middle": 3 << 20, "usual": 900 << 10, "small": 60 << 10} {
		var b bytes.Buffer
		b.WriteString(`{"name":"demo","versions":{`)
		times := bytes.NewBufferString(`},"time":{`)
		for n := 0; b.Len()+times.Len() < size; n++ {
			fmt.Fprintf(&b, `"1.0.%d":{"x":"%s","dist":{"tarball":"%d","shasum":"%x"}},`, n, strings.Repeat("x", 512), n, sha1.Sum([]byte(name)))
			fmt.Fprintf(times, `"1.0.%d":"2020-01-01T00:00:00Z",`, n)
		}
		b.WriteString(`"2.0.0":{}` + times.String() + `"2.0.0":"2999-01-01T00:00:00Z"}}`)
		bodies["/"+name] = b.Bytes()
	}
	in.Serve("192.0.2.1:443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bodies[r.URL.Path[:strings.LastIndex(r.URL.Path, "-")]])
	}), "npm.example.org")
	f := supervise.New(t, func(c *isolate.Config) {
		c.Network = []byte(`{"allow":[{"host":"npm.example.org","registry":"npm"` + week + `}],"private":["192.0.2.1/32"]}`)
		c.Requests = &admit.Requests{Keep: 64 << 20}
	})
	// One connection: on a busy machine, handshakes of many would not be in time.
	const script = `curl -sS -Z --parallel-max 32 -m 280 -w '%{http_code}\n' $(for f in large-1 large-2 \
		$(for n in 1 2 3 4 5 6 7 8; do echo middle-$n usual-$n small-$n; done); do echo "-o /dev/null https://npm.example.org/$f"; done)`
	spec := f.Spec("sh", "-c", script)
	spec.Limits = job.Limits{Wall: 5 * time.Minute, Memory: 4 << 30, PIDs: 512}
	f.Sh("curl -sS -o /dev/null https://npm.example.org/small-0")
	before := egresses(t)
	d := f.Run(spec)
	if n := strings.Count(d.Out, "200\n"); n != 26 {
		t.Errorf("%d of 26 requests succeeded: %s%s", n, d.Out, d.Err)
	}
	if after := egresses(t); len(before) != 1 || !slices.Equal(before, after) {
		t.Fatalf("the process was ended: %v, %v", before, after)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", before[0]))
	if err != nil {
		t.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if kib, err := strconv.Atoi(strings.Fields(peak)[0]); err != nil || kib > 448<<10 {
		t.Errorf("it had %d KiB, %v", kib, err)
	} else {
		t.Logf("it had %d KiB", kib)
	}
}

// kept returns the names of the files that are kept for a user, in the volume that a supervisor with a state directory has for it.
func kept(t *testing.T, state string, user uint32) []string {
	t.Helper()
	root, _ := volumeOf(t, state, user)
	defer root.Close()
	names, err := root.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// volumeOf opens the volume of a user, and returns the path of its file, too.
func volumeOf(t *testing.T, state string, user uint32) (root *os.File, path string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(state, "cache", fmt.Sprintf("%d.*", user)))
	if err != nil || len(all) != 1 {
		t.Fatalf("%q, %v", all, err)
	}
	dir, err := os.Open(filepath.Dir(all[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if root, err = volume.OpenPresent(dir, filepath.Base(all[0])); err != nil {
		t.Fatal(err)
	}
	return root, all[0]
}

// TestRegistryMinAge: clients install the newest version that is old enough, and a young one is denied also to a client that asks for it.
func TestRegistryMinAge(t *testing.T) {
	m := newMall(t, week)
	for _, i := range installers {
		t.Run(i.name, func(t *testing.T) {
			if d := m.install(m.again(t), i.script); !strings.Contains(d.Out, i.old) || i.young != i.old && strings.Contains(d.Out, i.young) {
				t.Errorf("%s%s", d.Out, d.Err)
			}
		})
	}
	for _, url := range []string{
		"npm.example.org/demo/-/demo-2.0.0.tgz", "files.py.example.org/demo-2.0.0-py3-none-any.whl", "static.rs.example.org/crates/demo/2.0.0/download",
		"proxy.go.example.org/example.org/demo/@v/v1.1.0.zip",
	} {
		if d := m.Run(m.Spec("curl", "-sS", "https://"+url)); !strings.HasPrefix(d.Out, "corral: denied: ") || !strings.Contains(d.Out, "was published on") {
			t.Errorf("%s: %q %s", url, d.Out, d.Err)
		}
	}
}

// TestRegistryPrivate: a job gets packages with a secret that it does not see, and no other job of the user gets them without it.
func TestRegistryPrivate(t *testing.T) {
	mine := sandboxtest.NewRepo(t)
	const rules = `{"allow":[{"host":"npm.example.org"SECRET,"registry":"npm"}],"private":["192.0.2.1/32"]}`
	m := newMall(t, "", func(c *isolate.Config) {
		c.Network = []byte(strings.Replace(rules, "SECRET", "", 1))
		c.Repos = []admit.Entry{{
			Path: mine, Network: []byte(strings.Replace(rules, "SECRET", `,"secret":"acme"`, 1)), UIDs: []uint32{sandboxtest.Owner},
			Requests: &admit.Requests{Keep: 64 << 20, Secrets: []control.Secret{acme}, Variables: []string{"CORRAL_SECRET"}},
		}}
	})
	const script = `echo '{}' >package.json && echo '//npm.example.org/:_authToken=${CORRAL_SECRET}' >.npmrc &&
		npm_config_registry=https://npm.example.org/ npm install --no-audit --no-fund demo && node -p "require('demo')"`
	for _, off := range []bool{false, true} {
		m.off.Store(off)
		if d := m.install(m.With(t, m.C, mine).Front, script); !strings.Contains(d.Out, "npm 2.0.0") {
			t.Errorf("off: %v: %s%s", off, d.Out, d.Err)
		}
	}
	if d := m.install(m.again(t), installers[0].script); strings.Contains(d.Out, "npm 2.0.0") {
		t.Errorf("without the secret: %s", d.Out)
	}
	root, _ := volumeOf(t, m.State, sandboxtest.Owner)
	defer root.Close()
	if err := unix.Syncfs(int(root.Fd())); err != nil { // the file of the volume has all of it then
		t.Error(err)
	}
	err := filepath.WalkDir(m.State, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(acmeValue)) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
