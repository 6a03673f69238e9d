package supervisor

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/config"
	"corral/job"
)

// TestVetting checks that overlapping repositories and those with the configuration are refused and logged, and that
// others are served.
func TestVetting(t *testing.T) {
	readOnly := job.ReadOnly
	owner := uint32(7)
	c := config.Default()
	c.Repos = []config.Repo{
		{ID: "outer", Path: "/srv/outer"},
		{ID: "inner", Path: "/srv/outer/inner"},
		{ID: "beside", Path: "/srv/outer-beside", Owner: &owner},
		{ID: "holds", Path: "/srv/holds"},
		{ID: "reads", Path: "/srv/reads", Workspace: &readOnly},
	}
	var log bytes.Buffer
	vet := vetting(c, []string{"/etc/corral/config.yaml", "/srv/holds/corral.yaml", "/srv/reads/corral.yaml"}, slog.New(slog.NewTextHandler(&log, nil)))
	for path, want := range map[string]string{
		"/srv/outer": `overlaps the repository inner, /srv/outer/inner`, "/srv/outer/inner": `overlaps the repository outer, /srv/outer`,
		"/srv/outer-beside": "", "/srv/holds": "contains this server's configuration, /srv/holds/corral.yaml", "/srv/reads": "",
		"/srv/removed": "the operator has removed it from the configuration",
	} {
		err := vet(path)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if logged := strings.Contains(log.String(), "path="+path+" "); logged != (want != "" && path != "/srv/removed") {
			t.Errorf("%s: log: %s", path, log.String())
		}
	}
	if got := Owners(c.Repos); len(got) != 1 || got["/srv/outer-beside"] != 7 {
		t.Errorf("%v", got)
	}
}

// TestVettingLinks: a repository is refused if the configuration is behind a link in it, or leads through it: jobs could replace
// the file, or the link.
func TestVettingLinks(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"config", "dotfiles/corral", "hops", "beside"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(top, "config", "config.yaml")
	if err := errors.Join(
		os.WriteFile(filepath.Join(top, "dotfiles", "corral", "config.yaml"), nil, 0o600),
		os.Symlink("../dotfiles/corral", filepath.Join(top, "hops", "dir")),
		os.Symlink("../hops/dir/config.yaml", file),
	); err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	for _, name := range []string{"dotfiles", "hops", "beside"} {
		c.Repos = append(c.Repos, config.Repo{ID: name, Path: filepath.Join(top, name)})
	}
	vet := vetting(c, []string{file}, slog.New(slog.DiscardHandler))
	for name, refused := range map[string]bool{"dotfiles": true, "hops": true, "beside": false} {
		if err := vet(filepath.Join(top, name)); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
