package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"corral/internal/test/sandboxtest"
	"corral/workspace/image/unpack"
)

// A mirror is the source of this machine's packages.
type mirror struct{ uri, suite, proxy string }

// aptMirror reads the mirror from apt's configuration.
func aptMirror() (mirror, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(COMPONENT) $(CODENAME) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return mirror{}, fmt.Errorf("apt-get indextargets: %w", err)
	}
	proxy, err := exec.Command("apt-config", "shell", "proxy", "Acquire::http::Proxy").Output()
	if err != nil {
		return mirror{}, fmt.Errorf("apt-config: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "main" && !strings.Contains(f[1], "-") && strings.HasPrefix(f[2], "http") {
			return mirror{uri: f[2], suite: f[1], proxy: strings.Trim(strings.TrimPrefix(strings.TrimSpace(string(proxy)), "proxy="), "'")}, nil
		}
	}
	return mirror{}, errors.New("no Debian suite in apt's sources")
}

// debianMirror returns an error unless the mirror can be reached.
func debianMirror() error {
	m, err := aptMirror()
	if err != nil {
		return err
	}
	if m.proxy != "" {
		return nil // mmdebstrap will find out
	}
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Get(strings.TrimSuffix(m.uri, "/") + "/dists/" + m.suite + "/Release")
	if err != nil {
		return fmt.Errorf("the mirror: %w", err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		return fmt.Errorf("the mirror: %s", response.Status)
	}
	return nil
}

// debian returns a directory for the test and the root of a small Debian, which mmdebstrap installs in half the time of debootstrap, once
// a month. It uses /var/tmp, since /tmp may not allow devices and be small.
func debian(t *testing.T) (work, root string) {
	t.Helper()
	m, err := aptMirror()
	if err != nil {
		t.Fatal(err)
	}
	work, err = os.MkdirTemp("/var/tmp", "corral-image-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(work); err != nil {
			t.Error(err)
		}
	})
	inputs := []string{"with apt", m.uri, m.suite, runtime.GOARCH, time.Now().Format("2006-01")}
	return work, filepath.Join(sandboxtest.Prepared(t, "debian", inputs, func(dir string) error {
		cmd := exec.Command("mmdebstrap", "--quiet", "--mode=root", "--variant=essential", "--include=passwd,apt", "--dpkgopt=force-unsafe-io",
			m.suite, filepath.Join(dir, "root"), m.uri)
		cmd.Env = append(os.Environ(), "http_proxy="+m.proxy)
		if log, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mmdebstrap: %w\n%s", err, log[max(0, len(log)-2000):])
		}
		return nil
	}), "root")
}

// TestDebian checks that a real system, as a directory, an archive and an image, always gives the same tree: the
// original without the dropped parts.
func TestDebian(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("mmdebstrap"), sandboxtest.Program("tar"),
		sandboxtest.Program("apt-get"), debianMirror)
	work, root := debian(t)
	want, dropped := surveyed(t, root)
	before, ok := strings.CutPrefix(want[dpkgSettings], "directory 755 ")
	if !ok {
		t.Fatalf("%s: %q", dpkgSettings, want[dpkgSettings])
	}
	want[dpkgFile] = fmt.Sprintf("file 644 %s %x %s", before, sha256.Sum256([]byte(notRoot)), dpkgFile)
	if len(want) < 3000 || dropped == 0 {
		t.Fatalf("%d files are too few for Debian, or no devices: %d", len(want), dropped)
	}
	plainTar := filepath.Join(work, "root.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", plainTar, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v, %s", err, out)
	}
	base, err := tarball.LayerFromFile(plainTar, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestSpeed)) // it is compressed three times
	if err != nil {
		t.Fatal(err)
	}
	junk := packedLayer(t, headers{dir("old"), text("old/x", "x"), text("junk", "y"), dir("usr"), text("usr/junk", "z")}, gzipped, types.OCILayer)
	away := packedLayer(t, headers{text(".wh.old", ""), text(".wh.junk", ""), text("usr/.wh.junk", "")}, zstandard, types.OCILayerZStd)
	for kind, path := range map[string]string{
		"directory": root, "tar archive": plainTar, "OCI layout": layoutOf(t, withLayers(t, runtime.GOARCH, junk, base, away)),
	} {
		t.Run(kind, func(t *testing.T) {
			got, sum := through(t, work, path)
			if sum.Devices != dropped {
				t.Errorf("%d devices, want %d", sum.Devices, dropped)
			}
			sameSurvey(t, got, want)
		})
	}
	t.Run("in a jail", func(t *testing.T) { inJail(t, work, root, plainTar) })
}

// through flattens and unpacks the source at path, and returns a survey of the result.
func through(t *testing.T, work, path string) (map[string]string, Summary) {
	t.Helper()
	s, err := Open(path, generous)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	where, err := os.MkdirTemp(work, "out-") //nolint:usetesting // /tmp may have little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(where)
	r, w := io.Pipe()
	written := make(chan error, 1)
	var sum Summary
	go func() {
		out := bufio.NewWriterSize(w, 256<<10)
		var err error
		if sum, err = s.Write(out); err == nil {
			err = out.Flush()
		}
		w.CloseWithError(err)
		written <- err
	}()
	totals, err := unpack.Unpack(r, where)
	if err := errors.Join(err, r.Close(), <-written); err != nil {
		t.Fatal(err)
	}
	if totals != sum.Totals {
		t.Errorf("written: %s, unpacked: %s", sum.Totals, totals)
	}
	got, dropped := surveyed(t, where)
	if dropped > 0 {
		t.Errorf("%d devices came out", dropped)
	}
	return got, sum
}

// surveyed describes all files below root by mode without set-id bits, time, content and hard links. It only counts
// devices, pipes and sockets.
func surveyed(t *testing.T, root string) (all map[string]string, dropped int64) {
	t.Helper()
	all = map[string]string{}
	first := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := path[len(root)+1:]
		stat := info.Sys().(*syscall.Stat_t)
		switch stat.Mode & syscall.S_IFMT {
		case syscall.S_IFDIR:
			all[name] = fmt.Sprintf("directory %o %d", stat.Mode&unpack.DirectoryMode, stat.Mtim.Sec)
		case syscall.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			all[name] = "link " + target
		case syscall.S_IFREG:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			same := name
			if stat.Nlink > 1 {
				if same = first[stat.Ino]; same == "" {
					same, first[stat.Ino] = name, name
				}
			}
			all[name] = fmt.Sprintf("file %o %d %x %s", stat.Mode&unpack.FileMode, stat.Mtim.Sec, sha256.Sum256(content), same)
		default:
			dropped++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, dropped
}

func sameSurvey(t *testing.T, got, want map[string]string) {
	t.Helper()
	var different bytes.Buffer
	count := 0
	for name := range want {
		if got[name] != want[name] {
			if count++; count < 20 {
				fmt.Fprintf(&different, "%q: got %q, want %q\n", name, got[name], want[name])
			}
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			if count++; count < 20 {
				fmt.Fprintf(&different, "%q: unexpected %q\n", name, got[name])
			}
		}
	}
	if count > 0 {
		t.Errorf("%d differ:\n%s", count, different.String())
	}
}
