package admit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/job"
)

// TestServesErrorUniform: in its own mount namespace a client can have directories at any path. The error for one of
// them must not reveal what the host has at that path, which the client may not see.
func TestServesErrorUniform(t *testing.T) {
	s := serveDirs(t, Config{Own: true})
	closed := filepath.Join(t.TempDir(), "closed")
	mkdir(t, closed, 0)
	for _, name := range []string{"directory", "closed"} {
		mkdir(t, filepath.Join(closed, name), 0)
	}
	put(t, closed+"/file", "", 0o600, 0)
	if err := errors.Join(os.Symlink("directory", closed+"/link"), os.Chmod(closed+"/closed", 0), os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	names := []string{"directory", "closed", "file", "link", "nothing", "file/in", "link/in", "nothing/in"}
	passed := map[string]*os.File{}
	inMountNamespace(t, func() error {
		if err := unix.Mount("test", closed, "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
		for _, name := range names {
			path := filepath.Join(closed, name)
			if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, owner, owner)); err != nil {
				return err
			}
			f, err := handle(path)
			if err != nil {
				return err
			}
			passed[name] = f
		}
		return nil
	})
	errorTexts := map[string]string{}
	for _, name := range names {
		path := filepath.Join(closed, name)
		defer passed[name].Close()
		r, err := s.Serves(host.Peer{UID: owner}, path, passed[name])
		if err == nil {
			r.Close()
			t.Fatalf("%s is served", path)
		}
		var refusal *job.Refusal
		if !errors.As(err, &refusal) {
			t.Fatalf("%s: %v", path, err)
		}
		text := fmt.Sprintf("%s %d %s %s", refusal.Step, refusal.Errno, refusal.Message, refusal.Hint)
		errorTexts[strings.ReplaceAll(text, path, "PATH")] += " " + name
	}
	if len(errorTexts) != 1 {
		t.Errorf("a client can tell these apart: %q", errorTexts)
	}
}
