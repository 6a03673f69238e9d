package packages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/policy/network"
)

// cutoff is Options.Before of the tests: what is of June is too young.
var cutoff = time.Date(2026, 5, 31, 0, 0, 0, 0, time.UTC)

const (
	may  = "2026-05-01T10:00:00.123456Z"
	june = "2026-06-01T10:00:00Z"
)

var (
	sum  = strings.Repeat("ab", 32)
	long = strings.Repeat("cd", 64)
)

func documentAt(t *testing.T, address, kind, body string) Document {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return Document{u, kind, []byte(body)}
}

// TestClassify is the table of paths.
func TestClassify(t *testing.T) {
	sha := digestOf("sha256", sum)
	for _, tt := range []struct {
		kind, path string
		want       Item
	}{
		{network.NPM, "/demo", Item{Class: Index, Name: "demo"}},
		{network.NPM, "/npm/@acme/demo", Item{Class: Index, Name: "@acme/demo"}},
		{network.NPM, "/demo/-/demo-1.0.0.tgz", Item{Class: File, Name: "demo-1.0.0.tgz", Index: "/demo"}},
		{network.NPM, "/@acme/demo/-/demo-1.0.0.tgz", Item{Class: File, Name: "demo-1.0.0.tgz", Index: "/@acme/demo"}},
		{network.NPM, "/-/v1/search", Item{}},
		{network.NPM, "/-/ping", Item{}},
		{network.NPM, "/", Item{}},
		{network.NPM, "/demo-1.0.0.tgz", Item{}},
		{network.PyPI, "/simple/demo/", Item{Class: Index, Name: "demo"}},
		{network.PyPI, "/root/+simple/demo", Item{Class: Index, Name: "demo"}},
		{network.PyPI, "/simple/", Item{}},
		{network.PyPI, "/pypi/demo/json", Item{}},
		{network.PyPI, "/a/demo-1.0.tar.gz", Item{Class: File, Name: "demo-1.0.tar.gz"}},
		{
			network.PyPI, "/packages/ab/ab/" + sum[4:] + "/demo-1.0-py3-none-any.whl",
			Item{Class: File, Name: "demo-1.0-py3-none-any.whl", Digest: digestOf("blake2b_256", sum)},
		},
		{network.PyPI, "/packages/ab/ab/" + sum[4:] + "/demo-1.0-py3-none-any.whl.metadata", Item{Class: File, Name: "demo-1.0-py3-none-any.whl.metadata"}},
		{network.Cargo, "/config.json", Item{Class: Index, Name: "config.json", Ageless: true}},
		{network.Cargo, "/de/mo/demo", Item{Class: Index, Name: "demo"}},
		{network.Cargo, "/x/1/a", Item{Class: Index, Name: "a"}},
		{network.Cargo, "/3/a/abc", Item{Class: Index, Name: "abc"}},
		{network.Cargo, "/crates/demo/1.0.0/download", Item{Class: File, Name: "demo-1.0.0.crate"}},
		{network.Cargo, "/crates/demo/demo-1.0.0.crate", Item{Class: File, Name: "demo-1.0.0.crate"}},
		{network.Cargo, "/api/v1/crates", Item{}},
		{network.Go, "/example.org/a/@v/list", Item{Class: Index, Name: "example.org/a@list"}},
		{network.Go, "/example.org/a/@latest", Item{Class: Index, Name: "example.org/a@latest"}},
		{network.Go, "/example.org/a/@v/main.info", Item{Class: Index, Name: "example.org/a@main.info"}},
		{network.Go, "/example.org/a/@v/v1.info", Item{Class: Index, Name: "example.org/a@v1.info"}},
		{network.Go, "/example.org/a/@v/main.zip", Item{}},
		{
			network.Go, "/example.org/a/@v/v1.2.3-!r!c1.zip",
			Item{Class: File, Name: "example.org/a@v1.2.3-!r!c1.zip", Verified: true, Index: "/example.org/a/@v/v1.2.3-!r!c1.info"},
		},
		{
			network.Go, "/example.org/a/@v/v2.0.0+incompatible.mod",
			Item{Class: File, Name: "example.org/a@v2.0.0+incompatible.mod", Verified: true, Index: "/example.org/a/@v/v2.0.0+incompatible.info"},
		},
		{network.Go, "/sumdb/sum.golang.org/tile/8/0/001", Item{Class: File, Name: "checksums tile/8/0/001", Verified: true, Ageless: true}},
		{network.Go, "/lookup/example.org/a@v1.0.0", Item{Class: Index, Name: "checksums lookup/example.org/a@v1.0.0", Ageless: true}},
		{network.Go, "/sumdb/sum.golang.org/supported", Item{Class: Index, Name: "checksums supported", Ageless: true}},
		{network.Go, "/other", Item{}},
		{network.Debian, "/debian/pool/main/d/demo/demo_1.0_all.deb", Item{Class: File, Name: "demo_1.0_all.deb"}},
		{network.Debian, "/debian/dists/stable/InRelease", Item{Class: Current, Name: "stable/InRelease"}},
		{network.Debian, "/debian/dists/stable/main/binary-all/Packages.xz", Item{Class: Current, Name: "stable/main/binary-all/Packages.xz"}},
		{network.Debian, "/debian/dists/stable/main/binary-all/by-hash/SHA256/" + sum, Item{Class: File, Name: "stable/main/binary-all " + sum[:12], Digest: sha}},
		{network.Debian, "/debian/dists/stable/by-hash/SHA256/abcd", Item{Class: File, Name: "stable abcd"}},
		{network.Debian, "/flat/Packages.gz", Item{Class: Current, Name: "Packages.gz"}},
		{network.Debian, "/debian/", Item{}},
		{"rubygems", "/demo", Item{}},
	} {
		if got := Classify(tt.kind, tt.path); got != tt.want {
			t.Errorf("%s %s: %+v, want %+v", tt.kind, tt.path, got, tt.want)
		}
	}
}

// TestDigests: digests are read in the forms of registries, and other text is no digest.
func TestDigests(t *testing.T) {
	hello := "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for _, d := range []Digest{ParseDigest(hello), parseIntegrity("sha1-qvTGHdzF6KLavt4PO0gs2a6pQ00= sha256-LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=?x")} {
		if d.String() != hello {
			t.Fatalf("%q, want %q", d, hello)
		}
		h := d.New()
		if _, err := h.Write([]byte("hello")); err != nil || string(h.Sum(nil)) != d.Sum {
			t.Errorf("%x, %v", h.Sum(nil), err)
		}
	}
	for _, s := range []string{"", "sha256:", "sha256:zz", "md5:00", "sha256:" + long, "sha512:" + sum, "sha1:" + strings.Repeat("00", 1000)} {
		if d := ParseDigest(s); d != (Digest{}) || d.String() != "" {
			t.Errorf("%s: %v", s, d)
		}
	}
	for _, s := range []string{"", "sha512-", "sha512-AAAA", "md5-AAAA", "sha512"} {
		if d := parseIntegrity(s); d != (Digest{}) {
			t.Errorf("%s: %v", s, d)
		}
	}
}

const packument = `{"name":"demo","readme":"of 3.0.0","dist-tags":{"latest":"3.0.0","next":"4.0.0-rc.1","old":"1.0.0"},
"time":{"created":"` + may + `","modified":"` + june + `","1.0.0":"` + may + `","2.0.0":"` + may + `","3.0.0":"` + june + `","9.0.0":"` + june + `","unpublished":{}},
"versions":{"1.0.0":{"dist":{"tarball":"https://npm.example.org/demo/-/demo-1.0.0.tgz","shasum":"aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"}},
"2.0.0":{"dist":{"tarball":"demo/-/demo-2.0.0.tgz","integrity":"sha256-LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}},
"3.0.0":{"dist":{"tarball":"https://npm.example.org/demo/-/demo-3.0.0.tgz"}},
"4.0.0-rc.1":{"dist":{"Tarball":"https://npm.example.org/other"}},"5.0.0":7}}`

// TestNPM: versions that are too young or of an unknown age are left out, and tags lead to those that are there.
func TestNPM(t *testing.T) {
	d := documentAt(t, "https://npm.example.org/demo", "application/json", packument)
	all, err := Read(network.NPM, d, Options{})
	if err != nil || string(all.Body) != packument || len(all.Facts) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	facts := map[string]Fact{}
	for _, f := range all.Facts {
		facts[f.Address] = f
	}
	one, two := facts["https://npm.example.org/demo/-/demo-1.0.0.tgz"], facts["https://npm.example.org/demo/-/demo-2.0.0.tgz"]
	if one.Digest.Algorithm != "sha1" || one.Published.IsZero() || two.Digest.Algorithm != "sha256" {
		t.Errorf("%+v", facts)
	}
	r, err := Read(network.NPM, d, Options{Before: cutoff})
	if err != nil || len(r.Facts) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	var got struct {
		Tags     map[string]string          `json:"dist-tags"`
		Versions map[string]json.RawMessage `json:"versions"`
		Time     map[string]json.RawMessage `json:"time"`
		Readme   string                     `json:"readme"`
	}
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Versions) != 2 || got.Versions["1.0.0"] == nil || got.Versions["2.0.0"] == nil || got.Readme != "" {
		t.Errorf("%s", r.Body)
	}
	if len(got.Tags) != 2 || got.Tags["latest"] != "2.0.0" || got.Tags["old"] != "1.0.0" {
		t.Errorf("tags %v", got.Tags)
	}
	if strings.Contains(string(r.Body), "2026-06") || strings.Contains(string(r.Body), "9.0.0") {
		t.Errorf("it tells what is not there yet: %s", r.Body)
	}
	for body, want := range map[string]error{
		`{"versions":{"1.0.0":{}}}`: ErrNoTimes, `{"versions":{}}`: nil, `{"version":"1.0.0"}`: ErrMalformed, `[]`: ErrMalformed, `{`: ErrMalformed,
		`{"versions":` + strings.Repeat("[", 100_000): ErrMalformed, `{"versions":{},"time":7,"dist-tags":[]}`: nil,
	} {
		if _, err := Read(network.NPM, documentAt(t, "https://npm.example.org/demo", "", body), Options{Before: cutoff}); !errors.Is(err, want) {
			t.Errorf("%.60s: %v, want %v", body, err, want)
		}
	}
	// Without a version to fall back to, there is no latest one.
	tags := map[string]string{"latest": "1.0.0"}
	if repairTags(tags, object{"2.0.0": nil, "0.9.0-rc.1": nil}); len(tags) != 0 {
		t.Errorf("%v", tags)
	}
}

const simple = `{"meta":{"api-version":"1.1"},"name":"demo","versions":["1.0","2.0"],"files":[
{"filename":"demo-1.0.tar.gz","url":"https://files.example.org/demo-1.0.tar.gz","hashes":{"sha256":"SUM"},"upload-time":"` + may + `","requires-python":">=3.8","core-metadata":{"sha256":"SUM"},"yanked":"a \"reason\""},
{"filename":"demo-2.0-py3-none-any.whl","url":"demo-2.0-py3-none-any.whl","hashes":{"sha256":"SUM"},"upload-time":"` + june + `","yanked":true,"core-metadata":true},
{"filename":"demo-3.0.zip","url":"http://[bad","hashes":{}}]}`

// TestPyPI: files that are too young are left out, in JSON and in HTML.
func TestPyPI(t *testing.T) {
	body := strings.ReplaceAll(simple, "SUM", sum)
	d := documentAt(t, "https://pypi.example.org/simple/demo/", SimpleJSON+"; charset=utf-8", body)
	all, err := Read(network.PyPI, d, Options{})
	if err != nil || string(all.Body) != body || len(all.Facts) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	if f := all.Facts[1]; f.Address != "https://files.example.org/demo-1.0.tar.gz.metadata" || f.Digest.String() != "sha256:"+sum || f.Published.IsZero() {
		t.Errorf("%+v", f)
	}
	if f := all.Facts[2]; f.Address != "https://pypi.example.org/simple/demo/demo-2.0-py3-none-any.whl" {
		t.Errorf("%+v", f)
	}
	r, err := Read(network.PyPI, d, Options{Before: cutoff})
	if err != nil || r.Type != SimpleJSON || !bytes.Contains(r.Body, []byte("demo-1.0.tar.gz")) || bytes.Contains(r.Body, []byte("2.0")) {
		t.Errorf("%s, %v", r.Body, err)
	}
	r, err = Read(network.PyPI, d, Options{Before: cutoff, HTML: true})
	const want = `<a href="https://files.example.org/demo-1.0.tar.gz#sha256=SUM" data-requires-python="&gt;=3.8" data-core-metadata="sha256=SUM" data-yanked="a &#34;reason&#34;">demo-1.0.tar.gz</a><br>`
	if err != nil || !strings.Contains(string(r.Body), strings.ReplaceAll(want, "SUM", sum)) || strings.Count(string(r.Body), "<a ") != 1 {
		t.Errorf("%s, %v", r.Body, err)
	}
	// What is written is read as the same facts.
	r, err = Read(network.PyPI, documentAt(t, "https://pypi.example.org/simple/demo/", "text/html", string(r.Body)), Options{})
	if err != nil || len(r.Facts) != 2 || r.Facts[0].Digest != all.Facts[0].Digest || r.Facts[1].Digest != all.Facts[1].Digest {
		t.Errorf("%+v, %v", r, err)
	}
	for _, tt := range []struct {
		kind, body string
		want       error
	}{
		{"text/html", "<a href=x.whl>", ErrNoTimes},
		{SimpleJSON, `{"files":[{"filename":"x","url":"x"}]}`, ErrNoTimes},
		{SimpleJSON, `{"files":[]}`, nil},
		{SimpleJSON, `{"files":7}`, ErrMalformed},
		{SimpleJSON, `<a href=x.whl>`, ErrMalformed},
	} {
		if _, err := Read(network.PyPI, documentAt(t, "https://pypi.example.org/simple/demo/", tt.kind, tt.body), Options{Before: cutoff}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.body, err, tt.want)
		}
	}
	const links = `<A data-x=1 HREF='../../a.whl#sha256=SUM' data-dist-info-metadata="sha256=SUM"><a href="b.whl#md5=00"><a name=x><a href="c.whl#sha1=aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d">`
	r, err = Read(network.PyPI, documentAt(t, "https://pypi.example.org/simple/demo/", "text/html", strings.ReplaceAll(links, "SUM", sum)), Options{})
	if err != nil || len(r.Facts) != 2 || r.Facts[0].Address != "https://pypi.example.org/a.whl" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReadCargo: lines that are too young or of an unknown age are left out, and crates are where config.json says.
func TestReadCargo(t *testing.T) {
	line := func(version, pubtime string) string {
		return `{"name":"demo","vers":"` + version + `","cksum":"` + sum + `"` + pubtime + `}` + "\n"
	}
	body := line("1.0.0", `,"pubtime":"`+may+`"`) + line("2.0.0", `,"pubtime":"`+june+`"`) + "\n" + line("3.0.0", "")
	d := documentAt(t, "https://index.example.org/de/mo/demo", "text/plain", body)
	r, err := Read(network.Cargo, d, Options{Before: cutoff, Download: "https://static.example.org/crates"})
	if err != nil || string(r.Body) != line("1.0.0", `,"pubtime":"`+may+`"`) || len(r.Facts) != 3 {
		t.Fatalf("%s, %+v, %v", r.Body, r.Facts, err)
	}
	if f := r.Facts[0]; f.Address != "https://static.example.org/crates/demo/1.0.0/download" || f.Digest.String() != "sha256:"+sum || f.Published.IsZero() {
		t.Errorf("%+v", f)
	}
	for dl, want := range map[string]string{
		"https://a.example.org/{crate}-{version}.crate":        "https://a.example.org/demo-1.0.0.crate",
		"https://a.example.org/{prefix}/{lowerprefix}/{crate}": "https://a.example.org/de/mo/de/mo/demo",
		"https://a.example.org/{sha256-checksum}":              "https://a.example.org/" + sum,
		"ftp://a.example.org":                                  "", "": "",
	} {
		if got := crateAddress(d, dl, "demo", "1.0.0", sum); got != want {
			t.Errorf("%s: %s, want %s", dl, got, want)
		}
	}
	for name, want := range map[string]string{"a": "1", "ab": "2", "abc": "3/a", "Demo": "De/mo", "": ""} {
		if got := cratePrefix(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := CargoConfig("/x/de/mo/demo"); got != "/x/config.json" || CargoConfig("/crates/demo/1.0.0/download") != "" {
		t.Error(got)
	}
	r, err = Read(network.Cargo, documentAt(t, "https://index.example.org/config.json", "", `{"dl":"https://x.example.org"}`), Options{Before: cutoff})
	if err != nil || r.Download != "https://x.example.org" {
		t.Errorf("%+v, %v", r, err)
	}
	for body, want := range map[string]error{line("1.0.0", ""): ErrNoTimes, "": nil, "{": ErrMalformed, "7": ErrMalformed} {
		if _, err := Read(network.Cargo, documentAt(t, "https://index.example.org/de/mo/demo", "", body), Options{Before: cutoff}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}

// TestReadGo: a list has the versions that are old enough, and an .info tells of the files of its version.
func TestReadGo(t *testing.T) {
	old, _ := time.Parse(time.RFC3339, may)
	var asked []string
	published := func(versions []string) []time.Time {
		asked = versions
		times := make([]time.Time, len(versions))
		for i, v := range versions {
			if strings.HasPrefix(v, "v1.") {
				times[i] = old
			}
		}
		return times
	}
	d := documentAt(t, "https://proxy.example.org/example.org/a/@v/list", "text/plain", "v1.0.0\nbad\nv1.10.0\n v1.9.0\r\nv2.0.0\n")
	r, err := Read(network.Go, d, Options{Before: cutoff, Published: published})
	if err != nil || string(r.Body) != "v1.10.0\nv1.9.0\nv1.0.0\n" || !slices.Equal(asked, []string{"v2.0.0", "v1.10.0", "v1.9.0", "v1.0.0"}) {
		t.Errorf("%q, %q, %v", r.Body, asked, err)
	}
	if r, err := Read(network.Go, d, Options{}); err != nil || !bytes.Equal(r.Body, d.Body) {
		t.Errorf("%q, %v", r.Body, err)
	}
	if r, err := Read(network.Go, d, Options{Before: cutoff}); err != nil || len(r.Body) > 0 {
		t.Errorf("nobody knows the times: %q, %v", r.Body, err)
	}
	d.Body = nil
	for n := range 2 * maxListed {
		d.Body = fmt.Appendf(d.Body, "v1.%d.0\n", n)
	}
	if _, err := Read(network.Go, d, Options{Before: cutoff, Published: published}); err != nil || len(asked) != maxListed || asked[0] != "v1.511.0" {
		t.Errorf("%d versions were asked for", len(asked))
	}
	if got := InfoPath("/example.org/a/@v/list", "v1.0.0-RC1"); got != "/example.org/a/@v/v1.0.0-!r!c1.info" || InfoPath("/a/@v/list", "v1!") != "" {
		t.Error(got)
	}
	for body, want := range map[string]error{
		`{"Version":"v1.0.0","Time":"` + may + `"}`: nil, `{"Version":"v1.0.0","Time":"` + june + `"}`: ErrYoung, `{}`: ErrNoTimes, `[`: ErrMalformed,
	} {
		d := documentAt(t, "https://proxy.example.org/example.org/a/@v/v1.0.0.info", "", body)
		r, err := Read(network.Go, d, Options{Before: cutoff})
		if !errors.Is(err, want) || want == nil && (len(r.Facts) != 3 || r.Facts[2].Address != "https://proxy.example.org/example.org/a/@v/v1.0.0.zip") {
			t.Errorf("%s: %+v, %v, want %v", body, r, err, want)
		}
	}
	d = documentAt(t, "https://proxy.example.org/example.org/a/@v/main.info", "", `{"Version":"v1.0.0","Time":"`+may+`"}`)
	if r, err := Read(network.Go, d, Options{Before: cutoff}); err != nil || len(r.Facts) > 0 {
		t.Errorf("files of a branch: %+v, %v", r, err)
	}
	d = documentAt(t, "https://sum.example.org/lookup/a@v1.0.0", "", "1\na v1.0.0 h1:\n")
	if r, err := Read(network.Go, d, Options{Before: cutoff}); err != nil || !bytes.Equal(r.Body, d.Body) {
		t.Errorf("a lookup: %q, %v", r.Body, err)
	}
}

const packages = "Package: demo\nFilename: pool/d/demo_1.0_all.deb\nSize: 1\nSHA256: SUM\n\nPackage: none\nFilename: pool/d/none.deb\n\n" +
	"SHA256: SUM\nFilename: ./flat.deb\n\nFilename: bad.deb\nSHA256: 00\n\nFilename: ../../../above.deb\nSHA256: SUM\n"

// TestPackages: an index of packages has the digests of its files, however it is compressed.
func TestPackages(t *testing.T) {
	plain := strings.ReplaceAll(packages, "SUM", sum)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(plain))
	_ = z.Close()
	contents := map[string][]byte{"plain": []byte(plain), "gzip": zipped.Bytes()}
	for name, args := range map[string][]string{"xz": {"-c"}, "xz of many blocks": {"-c", "--block-size=64"}, "xz with CRC32": {"-c", "-C", "crc32"}} {
		contents[name] = compressed(t, plain, args...)
	}
	for name, content := range contents {
		got := map[string]string{}
		u, _ := url.Parse("http://deb.example.org/debian/dists/stable/main/binary-all/by-hash/SHA256/" + sum)
		if err := ReadPackages(u, bytes.NewReader(content), func(f Fact) { got[f.Address] = f.Digest.String() }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, file := range []string{"debian/pool/d/demo_1.0_all.deb", "debian/flat.deb"} {
			if got["http://deb.example.org/"+file] != "sha256:"+sum {
				t.Errorf("%s: %v, want %s", name, got, file)
			}
		}
		if len(got) != 2 { // the others have no digest, or are not below the archive
			t.Errorf("%s: %v", name, got)
		}
	}
	if !HasPackages("/debian/dists/stable/main/binary-all/by-hash/SHA256/"+sum) || !HasPackages("/flat/Packages.xz") || HasPackages("/debian/dists/stable/InRelease") {
		t.Error("HasPackages is wrong")
	}
	u, _ := url.Parse("http://deb.example.org/flat/Packages")
	_ = ReadPackages(u, strings.NewReader("Filename: ./a.deb\nSHA256: "+sum+"\n"), func(f Fact) {
		if f.Address != "http://deb.example.org/flat/a.deb" {
			t.Errorf("%s", f.Address)
		}
	})
}

// TestPackagesMalformed: compressed files that are malformed or need much memory are refused.
func TestPackagesMalformed(t *testing.T) {
	u, _ := url.Parse("http://deb.example.org/debian/dists/stable/main/binary-all/Packages.xz")
	whole := compressed(t, strings.ReplaceAll(packages, "SUM", sum), "-c")
	large := slices.Clone(whole)
	at := bytes.Index(large, []byte{0x21, 1})
	large[at+2] = 30 // 128 MiB
	other := slices.Clone(whole)
	other[at] = 4 // the filter for x86
	for name, content := range map[string][]byte{
		"half": whole[:len(whole)/2], "a header": whole[:12], "half a header": whole[:9], "another check": append(append([]byte{}, whole[:7]...), append([]byte{3}, whole[8:]...)...),
		"a large dictionary": large, "another filter": other, "half of gzip": {0x1f, 0x8b, 8}, "a long line": bytes.Repeat([]byte("x"), 2*maxStanza),
	} {
		if err := ReadPackages(u, bytes.NewReader(content), func(Fact) {}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func compressed(t *testing.T, s string, args ...string) []byte {
	t.Helper()
	xz, err := exec.LookPath("xz")
	if err != nil {
		t.Skip("needs the program xz")
	}
	cmd := exec.Command(xz, args...)
	cmd.Stdin = strings.NewReader(s)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCrowded: what would take far more memory than it has bytes is not decoded.
func TestCrowded(t *testing.T) {
	members := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const n = 100_000
	for name, body := range map[string]string{
		network.PyPI: `{"files":[{}` + strings.Repeat(",{}", n) + `]}`,
		network.NPM:  `{"versions":{"1":{}` + members(`,"%x":0`, n) + `}}`, network.Cargo: `{"name":"x"` + members(`,"%x":0`, n) + `}`,
		network.Go: `{"Time":"` + may + `"` + members(`,"%x":0`, n) + `}`,
	} {
		at := map[string]string{network.Go: "a/@v/v1.0.0.info", network.Cargo: "de/mo/demo"}[name]
		_, err := Read(name, documentAt(t, "https://example.org/"+at, SimpleJSON, body), Options{})
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "more") {
			t.Errorf("%s: %v", name, err)
		}
	}
	quoted := `{"files":[],"about":"` + strings.Repeat(`,{[\"`, n) + `"}`
	if _, err := Read(network.PyPI, documentAt(t, "https://example.org/", SimpleJSON, quoted), Options{}); err != nil {
		t.Errorf("in a text: %v", err)
	}
	links := `<a href="/a.whl#sha256=` + sum + `">` + strings.Repeat("<a >", 2*maxFacts)
	if facts := factsOfHTML(documentAt(t, "https://example.org/", "text/html", links+`<a href="/b.whl#sha256=`+sum+`">`)); len(facts) != 1 {
		t.Errorf("%d facts", len(facts))
	}
}

// TestRaw: what is decoded of a document refers to it, at each level. Copies would take several times its size.
func TestRaw(t *testing.T) {
	body := []byte(`{"versions":{"1.0.0":{"dist":{"tarball":"x"}}}}`)
	var all, versions object
	if err := errors.Join(json.Unmarshal(body, &all), json.Unmarshal(all["versions"], &versions)); err != nil {
		t.Fatal(err)
	}
	one := versions["1.0.0"]
	if at := bytes.Index(body, one); at < 0 || &body[at] != &one[0] {
		t.Errorf("%q is a copy", one)
	}
}

// TestFactsMemory: what is kept of a fact does not keep the text of its index.
func TestFactsMemory(t *testing.T) {
	const links = 1000
	var digests []Digest
	link := "<a href=\"/" + strings.Repeat("x", 2000) + "%d#sha256=" + strings.Repeat("0", 64) + "\">"
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range links {
		for _, f := range factsOfHTML(documentAt(t, "https://pypi.example.org/simple/demo/", "text/html", fmt.Sprintf(link, n))) {
			digests = append(digests, f.Digest)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / links; each > 1000 {
		t.Errorf("a digest takes %d bytes", each)
	}
	runtime.KeepAlive(digests)
	if len(digests) != links {
		t.Errorf("%d digests", len(digests))
	}
}

// TestAddress: a URL has one spelling, and one that cannot be a file's has none.
func TestAddress(t *testing.T) {
	for from, want := range map[string]string{
		"https://A.example.org:443/x%2fy": "https://a.example.org/x/y", "http://a.example.org:80/x": "http://a.example.org/x",
		"https://a.example.org:8443/@a%20b": "https://a.example.org:8443/@a%20b", "https://a.example.org/x?y": "", "ftp://a.example.org/x": "",
		"https://u@a.example.org/x": "", "/x": "", "https:///x": "", "https://a.example.org/" + strings.Repeat("x", MaxAddress): "",
	} {
		u, err := url.Parse(from)
		if err != nil {
			t.Fatal(err)
		}
		if got := Address(u); got != want {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
	}
	if _, err := Read("rubygems", documentAt(t, "https://a.example.org/", "", ""), Options{}); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// FuzzRead: no index makes a reader fail otherwise than by an error, and none has a fact of an address that is not one. What is left of an
// index for a minimum age has only versions that are known to be old enough.
func FuzzRead(f *testing.F) {
	kinds := []struct{ kind, at, mime string }{
		{network.NPM, "https://a.example.org/demo", "application/json"},
		{network.PyPI, "https://a.example.org/simple/demo/", SimpleJSON},
		{network.PyPI, "https://a.example.org/simple/demo/", "text/html"},
		{network.Cargo, "https://a.example.org/de/mo/demo", ""},
		{network.Cargo, "https://a.example.org/config.json", ""},
		{network.Go, "https://a.example.org/a/@v/list", ""},
		{network.Go, "https://a.example.org/a/@v/v1.0.0.info", ""},
	}
	for i := range kinds {
		for _, s := range []string{packument, simple, `{"name":"a","vers":"1.0.0","cksum":"","pubtime":"` + may + `"}`, "v1.0.0\n", `{"Time":"` + may + `"}`, `<a href="x.whl#sha256=">`, "{\"dl\":\"x\"}"} {
			f.Add(uint8(i), s)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, body string) {
		k := kinds[int(n)%len(kinds)]
		d := documentAt(t, k.at, k.mime, body)
		for _, o := range []Options{{}, {Before: cutoff, HTML: true, Download: "https://x.example.org/{crate}"}, {Before: cutoff, Published: func(v []string) []time.Time { return make([]time.Time, len(v)) }}} {
			r, err := Read(k.kind, d, o)
			for _, fact := range r.Facts {
				if u, err := url.Parse(fact.Address); err != nil || fact.Address != "" && Address(u) != fact.Address {
					t.Fatalf("%+v, %v", fact, err)
				}
			}
			if err != nil || o.Before.IsZero() || o.HTML || k.kind != network.NPM {
				continue
			}
			again, err := Read(k.kind, Document{d.URL, d.Type, r.Body}, o)
			if err != nil && !errors.Is(err, ErrNoTimes) || err == nil && !bytes.Equal(again.Body, r.Body) {
				t.Fatalf("%s, then %s, %v", r.Body, again.Body, err)
			}
		}
	})
}

// FuzzReadPackages: no content makes the reader fail otherwise than by an error.
func FuzzReadPackages(f *testing.F) {
	f.Add([]byte(packages))
	f.Add(append(slices.Clone(xzMagic), 0, 4, 0, 0, 0, 0, 2, 0, 0x21, 1, 0x16, 0, 0, 0, 0, 0, 0, 0))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	u, _ := url.Parse("http://deb.example.org/debian/dists/stable/main/binary-all/Packages.xz")
	f.Fuzz(func(t *testing.T, content []byte) {
		_ = ReadPackages(u, bytes.NewReader(content), func(fact Fact) {
			if fact.Digest == (Digest{}) || len(fact.Address) > MaxAddress {
				t.Fatalf("%+v", fact)
			}
		})
	})
}
