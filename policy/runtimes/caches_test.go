package runtimes

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModuleCaches checks which directories of a home directory are download caches: never what lies beside them, and
// nothing that a link leads to elsewhere.
func TestModuleCaches(t *testing.T) {
	f := newFake(t,
		"ada/go/pkg/mod/cache/download/", "ada/go/pkg/mod/cache/vcs/", "ada/.npm/_cacache/",
		"ada/.cache/wheelhouse/", "ada/.cache/pip/", "ada/.cargo/registry/", "ada/.cargo/git/", "ada/.cargo/credentials.toml",
		"bob/go/pkg/mod/cache/download -> /ada/go/pkg/mod/cache/download", "bob/.npm -> /ada/.npm",
		"eve/go/pkg/mod/cache/download", "link -> ada",
	)
	own := []string{
		f.at("ada/go/pkg/mod/cache/download"), f.at("ada/.npm/_cacache"), f.at("ada/.cache/wheelhouse"), f.at("ada/.cargo/registry"),
	}
	for home, want := range map[string][]string{
		"ada":    own,
		"link":   own,
		"bob":    nil,
		"eve":    nil,
		"absent": nil,
	} {
		if got := ModuleCaches(f.at(home)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", home, got, want)
		}
	}
}

// TestCargoRegistry checks that a registry is not shown if an index was cloned from a URL with a password or a token, or from one
// that cannot be read.
func TestCargoRegistry(t *testing.T) {
	const head = "8763712fdb3c57b3ddc5ad5b7836398277fc99d5\t\t"
	for _, tt := range []struct {
		name, head string
		shown      bool
	}{
		{"crates.io", head + "https://github.com/rust-lang/crates.io-index\n", true},
		{"a mirror on disk", head + "file:///srv/index\n", true},
		{"ssh", head + "ssh://git@example.com:22/index\n", true},
		{"ssh without a scheme", head + "git@example.com:index\n", true},
		{"password", head + "https://ada:hunter2@example.com/index\n", false},
		{"token", head + "http://hunter2@example.com/index\n", false},
		{"password of ssh", head + "ssh://ada:hunter2@example.com/index\n", false},
		{"the second of two", head + "https://example.com/a\n" + head + "https://ada:hunter2@example.com/b\n", false},
		{"empty", "", false},
		{"too long", strings.Repeat("x", maxSmall), false},
	} {
		f := newFake(t, "ada/.cargo/registry/cache/", "ada/.cargo/registry/index/a/config.json")
		f.text("ada/.cargo/registry/index/b/.git/FETCH_HEAD", tt.head)
		if got := ModuleCaches(f.at("ada")); slices.Contains(got, f.at("ada/.cargo/registry")) != tt.shown {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	f := newFake(t, "ada/.cargo/registry/index/b/.git -> /elsewhere", "elsewhere/FETCH_HEAD")
	f.text("elsewhere/FETCH_HEAD", head+"https://example.com/a\n")
	if got := ModuleCaches(f.at("ada")); got != nil {
		t.Errorf("a link: %q", got)
	}
}

// TestNpmSecret checks that a cache of npm is not shown if an entry of its index has credentials, if its owner has some in ~/.npmrc, or if
// either cannot be read as a whole.
func TestNpmSecret(t *testing.T) {
	const url = `{"key":"make-fetch-happen:request-cache:https://registry.npmjs.org/@a%2fb","integrity":"sha512-x=="`
	for _, tt := range []struct {
		name, index, npmrc string
		shown              bool
	}{
		{"none", url + `,"metadata":{"url":"https://registry.npmjs.org/@a/b@1","reqHeaders":{"accept":"*/*"}}}`, "# _authToken=x\nloglevel=error\n", true},
		{"header", url + `,"metadata":{"reqHeaders":{"authorization":"Bearer npm_x"}}}`, " ", false},
		{"header in capitals", url + `,"metadata":{"reqHeaders":{"Proxy-Authorization" : "Basic eA=="}}}`, " ", false},
		{"cookie", url + `,"metadata":{"reqHeaders":{"cookie":"a=b"}}}`, " ", false},
		{"URL", `{"key":"make-fetch-happen:request-cache:http://ada:hunter2@example.com/p.tgz"}`, " ", false},
		{"token in settings", url + "}", "//registry.npmjs.org/:_authToken=npm_x\n", false},
		{"password in settings", url + "}", "registry=https://example.com\n//example.com/:_password = eA==\n", false},
		{"old form", url + "}", "_auth=eA==", false},
		{"long entry", strings.Repeat("x", maxIndexFile), " ", false},
		{"long settings", url + "}", strings.Repeat("\n", maxIndexFile), false},
	} {
		f := newFake(t, "ada/.npm/_cacache/content-v2/", "ada/.npm/_cacache/index-v5/00/11/")
		f.text("ada/.npm/_cacache/index-v5/00/11/2233", "\n0a\t"+url+"}")
		f.text("ada/.npm/_cacache/index-v5/00/11/4455", tt.index)
		f.text("ada/.npmrc", tt.npmrc)
		if got := ModuleCaches(f.at("ada")); len(got) > 0 != tt.shown {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	f := newFake(t, "ada/.npm/_cacache/index-v5/00/11/link -> /elsewhere", "elsewhere")
	if got := ModuleCaches(f.at("ada")); got != nil {
		t.Errorf("a link in the index: %q", got)
	}
}

// TestCaches checks the variables with which package managers read the caches among the toolchains, and that caches are
// not searched for programs.
func TestCaches(t *testing.T) {
	f := newFake(t, "a b,c/cache/download/python3", "second/cache/download/", "n/_cacache/node", "closed/cache/download/", "file/cache/download",
		"a b/wheelhouse/python3", "r/cargo/registry/", "r/.cargo/registry/")
	golang := func(dir string) []string { return []string{"GOPROXY=file://" + dir + ",off", "GOSUMDB=off"} }
	npm := []string{"npm_config_cache=" + f.at("n"), "npm_config_prefer_offline=true", "npm_config_logs_max=0"}
	for _, tt := range []struct {
		name       string
		toolchains []string
		want       []string
	}{
		{"none", []string{"usr"}, nil},
		{"absent", []string{"absent/cache/download", "file/cache/download"}, nil},
		{
			"the first of each",
			[]string{"n/_cacache", "absent/cache/download", "a b,c/cache/download", "second/cache/download"},
			append(slices.Clone(npm), golang(f.at("a%20b%2Cc/cache/download"))...),
		},
		{"of pip", []string{"a b/wheelhouse"}, []string{"PIP_FIND_LINKS=file://" + f.at("a%20b/wheelhouse")}},
		{
			"of cargo",
			[]string{"r/.cargo/registry", "r/cargo/registry"},
			[]string{"CARGO_HOME=" + f.at("r/.cargo"), "CARGO_INSTALL_ROOT=/home/job/.cargo"},
		},
	} {
		i := f.find(tt.toolchains, nil)
		if got := i.Caches(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if path := i.Path(); regexp.MustCompile("cache/download|_cacache|wheelhouse|registry").MatchString(path) {
			t.Errorf("%s: PATH is %q", tt.name, path)
		}
		f.expect(tt.name, i, "node", "", "", "no program that runs node")
	}
	if got := (Installed{}).Caches(); got != nil {
		t.Errorf("without programs: %q", got)
	}
	if os.Getuid() == 0 {
		return // root can enter every directory
	}
	if err := os.Chmod(f.at("closed"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(f.at("closed"), 0o700) //nolint:errcheck // the directory is removed with the test's
	if got := f.find([]string{"closed/cache/download"}, nil).Caches(); !slices.Equal(got, golang(f.at("closed/cache/download"))) {
		t.Errorf("closed to the caller: %q", got)
	}
}
