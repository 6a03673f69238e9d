package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// patched is the part of a reply of runtime_execute about a patch.
type patched struct {
	ChangesHandle, ChangesReason, PatchArtifact string
	PatchIncomplete                             bool
}

// patched runs a shell script behind an overlay.
func (h *host) patched(code string, options object) *patched {
	h.t.Helper()
	arguments := object{"repoId": "app", "runtime": "shell", "code": code}
	for k, v := range options {
		arguments[k] = v
	}
	a := h.must("tools/call", object{"name": "runtime_execute", "arguments": arguments})
	v := &patched{}
	if err := json.Unmarshal(a.Result.Structured, v); err != nil {
		h.t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	return v
}

// output runs corral output as the place's user.
func (p *place) output(t *testing.T, handle string) (stdout, stderr string) {
	t.Helper()
	cmd := p.front("output", handle)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return out.String(), errs.String()
}

// merges checks that git makes the same of a copy of the repository, with a patch, as corral changes apply makes of the
// repository.
func (p *place) merges(t *testing.T, d *sandboxtest.Supervisor, patch, session string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", p.repo, copied).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	cmd := exec.Command("git", "apply")
	cmd.Dir, cmd.Stdin = copied, strings.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(copied))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, patch)
	}
	if out, err := p.front("changes", "apply", "--supervisor", d.Socket, session).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_ = os.Remove(filepath.Join(p.repo, "empty")) // git does not track empty directories
	if out, err := exec.Command("diff", "-r", copied, p.repo).CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}

// TestPatchArtifact checks that the changes of two calls are an artifact that git applies byte for byte, one for each
// state.
func TestPatchArtifact(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	p := newPlace(t)
	d := daemon(t)
	p.file(t, "a", "one\ntwo\n")
	p.file(t, "gone", "x\n")
	h := connect(t, p.front("mcp", "--config", p.overlaid(t), "--supervisor", d.Socket))
	if v := h.patched("cat a", nil); v.PatchArtifact != "" || v.ChangesReason != "" {
		t.Errorf("of nothing: %+v", v)
	}
	if v := h.patched("echo three >>a", object{"persistOutput": false}); v.PatchArtifact != "" || v.ChangesReason != "" {
		t.Errorf("nothing is to be kept: %+v", v)
	}
	first := h.patched("rm gone; printf '\\0\\377' >bin", nil)
	key := "AKIA" + "QWERTYUIOPASDFGH"
	second := h.patched("echo "+key+" >secret; chmod +x a; mkdir empty", nil)
	if first.PatchArtifact == "" || first.PatchIncomplete || second.PatchArtifact == "" || second.PatchArtifact == first.PatchArtifact || !second.PatchIncomplete {
		t.Fatalf("%+v, %+v", first, second)
	}
	if again := h.patched("ls", nil); again.PatchArtifact != second.PatchArtifact {
		t.Errorf("nothing was changed: %+v, before %+v", again, second)
	}
	f := h.query(object{"artifactHandle": second.PatchArtifact, "queryTerms": []string{"akia"}})
	if f.MatchStatus != "matched" || len(f.Excerpts) != 1 || !strings.Contains(f.Excerpts[0].Content, "+"+key) {
		t.Errorf("%+v", f)
	}
	h.to.Close()
	<-h.ended
	if patch, _ := p.output(t, first.PatchArtifact); strings.Contains(patch, "secret") || !strings.Contains(patch, "+three\n") {
		t.Errorf("the first patch:\n%s", patch)
	}
	patch, without := p.output(t, second.PatchArtifact)
	if without != "not in the patch: empty: it is an empty directory\n" {
		t.Errorf("%q", without)
	}
	p.merges(t, d, patch, second.ChangesHandle)
}
