package isolate

import (
	"strings"
	"testing"

	"corral/isolate/admit"
	"corral/job"
)

// TestReadOnlyEntryEnforced: no front-end gets write access to a repository that the operator configured readonly. A
// job that would have written reads it instead and reports that, also in a session.
func TestReadOnlyEntryEnforced(t *testing.T) {
	dir := newRepo(t)
	f := newFront(t, func(c *Config) { c.Repos = []admit.Entry{{Path: dir, ReadOnly: true, Profile: "strict"}} })
	f.Repo = dir
	script := "echo x >made || echo refused"
	spec := f.Spec("sh", "-c", script)
	for _, workspace := range []job.Workspace{job.Direct, job.ReadOnly} {
		spec.Workspace = workspace
		if d := f.Run(spec); strings.TrimSpace(d.Out) != "refused" || exists(dir+"/made") || d.ReadOnly != (workspace == job.Direct) {
			t.Errorf("%v: %+v", workspace, d)
		}
	}
	ss := f.Session(job.SessionSpec{})
	if d := f.In(ss, script); ss.Workspace != job.ReadOnly || strings.TrimSpace(d.Out) != "refused" || exists(dir+"/made") {
		t.Errorf("session %v: %+v", ss.Workspace, d)
	}
}
