package runtimes

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestModuleCaches checks which directories of a home directory are download caches: never what lies beside them, and
// nothing that a link leads to elsewhere.
func TestModuleCaches(t *testing.T) {
	f := newFake(t,
		"ada/go/pkg/mod/cache/download/", "ada/go/pkg/mod/cache/vcs/", "ada/.npm/_cacache/", "ada/.npmrc",
		"bob/go/pkg/mod/cache/download -> /ada/go/pkg/mod/cache/download", "bob/.npm -> /ada/.npm",
		"eve/go/pkg/mod/cache/download", "link -> ada",
	)
	for home, want := range map[string][]string{
		"ada":    {f.at("ada/go/pkg/mod/cache/download"), f.at("ada/.npm/_cacache")},
		"link":   {f.at("ada/go/pkg/mod/cache/download"), f.at("ada/.npm/_cacache")},
		"bob":    nil,
		"eve":    nil,
		"absent": nil,
	} {
		if got := ModuleCaches(f.at(home)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", home, got, want)
		}
	}
}

// TestCaches checks the variables with which package managers read the caches among the toolchains, and that caches are
// not searched for programs.
func TestCaches(t *testing.T) {
	f := newFake(t, "a b,c/cache/download/python3", "second/cache/download/", "n/_cacache/node", "closed/cache/download/", "file/cache/download")
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
	} {
		i := f.find(tt.toolchains, nil)
		if got := i.Caches(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if path := i.Path(); strings.Contains(path, "cache/download") || strings.Contains(path, "_cacache") {
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
