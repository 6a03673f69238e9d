package supervisor

import (
	"bytes"
	"log/slog"
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
