package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestReadOnlyRepository: in a repository that the operator made read-only, jobs run without write access. The user is
// told if the job fails or explicitly requested write access.
func TestReadOnlyRepository(t *testing.T) {
	sandboxtest.RequireJails(t)
	top := sandboxtest.OpenDir(t)
	repo := makeDirectory(t, filepath.Join(top, "repo"), alice, 0o755)
	d := &server{sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Everyone: true, Config: "repos:\n  - {path: " + repo + ", owner: 61234, workspace: readonly}\n",
	}), filepath.Join(top, "corral")}
	if err := sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), d.exe); err != nil {
		t.Fatal(err)
	}
	const note = "corral: the repository is read-only for jobs, by the operator's configuration or by its mount\n"
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string
		note   bool
	}{
		{[]string{"--", "pwd"}, 0, repo, false},
		{[]string{"--", "touch", "made"}, 1, "", true},
		{[]string{"--workspace", "direct", "--", "pwd"}, 0, repo, true},
		{[]string{"--workspace", "readonly", "--", "touch", "made"}, 1, "", false},
		{[]string{"--json", "--", "pwd"}, 0, `"readOnly":true`, false},
		{[]string{"--json", "--workspace", "readonly", "--", "pwd"}, 0, `"status":"success"`, false},
	} {
		code, out, errs := d.runs(alice, append([]string{"run", "--repo", repo}, tt.args...)...)
		if code != tt.code || !strings.Contains(out, tt.stdout) || strings.Contains(errs, note) != tt.note {
			t.Errorf("%q: exit code %d, %q, %q", tt.args, code, out, errs)
		}
	}
	if _, err := os.Lstat(filepath.Join(repo, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a job has written to the repository")
	}
}
