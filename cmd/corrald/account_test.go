package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestAuditAccount: records of a supervisor that root started name the user who called sudo, whether the job ran or was
// refused, and are found by that user. A job of the same directory by another user of sudo is not.
func TestAuditAccount(t *testing.T) {
	sandboxtest.RequireJails(t)
	dir := makeDirectory(t, filepath.Join(sandboxtest.OpenDir(t), "shared"), alice, 0o777)
	for _, uid := range []int{alice, bob} {
		bySudo(t, uid, []string{"run", "--repo", dir, "--profile", "unknown", "true"})
		if out := bySudo(t, uid, []string{"run", "--repo", dir, "sh", "-c", "echo ran"}); out != "ran\n" {
			t.Fatalf("user %d: %q", uid, out)
		}
	}
	for _, uid := range []int{alice, bob} {
		out := bySudo(t, 0, []string{"audit", "export", "--json", "--repo", dir, "--user", fmt.Sprint(uid)})
		for _, want := range []string{`"event":"refused"`, `"event":"decided"`, `"event":"finished"`} {
			if strings.Count(out, want) != 1 {
				t.Errorf("user %d: no single %s in\n%s", uid, want, out)
			}
		}
		for line := range strings.Lines(out) {
			if !strings.Contains(line, fmt.Sprintf(`"peer":0,"embedded":true,"account":%d,`, uid)) {
				t.Errorf("user %d: %s", uid, line)
			}
		}
		if out := bySudo(t, 0, []string{"audit", "export", "--repo", dir, "--user", fmt.Sprint(uid)}); !strings.Contains(out, fmt.Sprintf(" uid=0 account=%d ", uid)) {
			t.Errorf("user %d, as text: %s", uid, out)
		}
	}
}
