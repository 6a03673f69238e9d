package commands

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/job"
	"corral/workspace/image/unpack"
)

// A fakeSupervisor unpacks into a directory, without a jail.
type fakeSupervisor struct {
	dir     string
	names   []string // of existing images
	spec    job.SessionSpec
	run     func(stdin io.Reader, stdout, stderr io.Writer) job.Result // nil: the unpacker
	refuse  error                                                      // error of OpenSession
	lost    bool                                                       // CloseSession does not keep the layer
	closed  []bool                                                     // the argument keep of CloseSession
	runSpec job.Spec
}

func (k *fakeSupervisor) ListImages(context.Context) ([]job.Image, error) {
	var list []job.Image
	for _, name := range k.names {
		list = append(list, job.Image{Name: name})
	}
	return list, nil
}

func (k *fakeSupervisor) RemoveImage(context.Context, string) error { return errors.ErrUnsupported }

func (k *fakeSupervisor) OpenSession(_ context.Context, spec job.SessionSpec) (job.Session, error) {
	k.spec = spec
	if spec.Disk == 0 {
		spec.Disk = 1 << 20
	}
	return job.Session{ID: "0123", Disk: spec.Disk}, k.refuse
}

func (k *fakeSupervisor) CloseSession(_ context.Context, _ string, keep bool) (bool, error) {
	k.closed = append(k.closed, keep)
	return keep && !k.lost, nil
}

func (k *fakeSupervisor) ListSessions(context.Context) ([]job.Session, error) { return nil, nil }

func (k *fakeSupervisor) Run(_ context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	defer stdio.Stdin.Close()
	defer stdio.Stdout.Close()
	defer stdio.Stderr.Close()
	k.runSpec = spec
	if k.run != nil {
		return k.run(stdio.Stdin, stdio.Stdout, stdio.Stderr), nil
	}
	if err := unpack.Run([]string{k.dir}, stdio.Stdin, stdio.Stdout); err != nil {
		_, err = io.WriteString(stdio.Stderr, "corral-layer: "+err.Error()+"\n")
		return job.Result{Status: job.Failure, ExitCode: 1}, err
	}
	return job.Result{Status: job.Success}, nil
}

// rootArchive writes an archive of a small root file system.
func rootArchive(t *testing.T, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImport checks the result of an import and the end of its session, on success and on failure.
func TestImport(t *testing.T) {
	good := rootArchive(t, "etc/", "etc/passwd")
	says := func(status job.Status, limit, stdout, stderr string) func(io.Reader, io.Writer, io.Writer) job.Result {
		return func(stdin io.Reader, out, errs io.Writer) job.Result {
			_, _ = io.Copy(io.Discard, stdin)
			_, _ = io.WriteString(out, stdout)
			_, _ = io.WriteString(errs, stderr)
			return job.Result{Status: status, Limit: limit}
		}
	}
	tests := []struct {
		name   string
		host   fakeSupervisor
		source string
		err    string // "" is none
		closed string // the argument keep of CloseSession
	}{
		{"good", fakeSupervisor{}, good, "", "keep"},
		{"taken", fakeSupervisor{names: []string{"other", "image"}}, good, "the root file system image already exists\nhint: corral rootfs remove image", ""},
		{"no source", fakeSupervisor{}, "/nonexistent/x", "no such file", ""},
		{"refused", fakeSupervisor{refuse: &job.Refusal{Step: "session", Message: "no"}}, good, "no", ""},
		{"no archive", fakeSupervisor{}, rootArchive(t), "the root file system is empty", "discard"},
		{"a trick", fakeSupervisor{}, rootArchive(t, "../x"), `root.tar, a tar archive: entry "../x": the name contains ".."`, "discard"},
		{"too large", fakeSupervisor{}, rootArchive(t, strings.Repeat("n", 300)), "a component of 300 bytes", "discard"},
		{"not kept", fakeSupervisor{lost: true}, good, "the supervisor did not keep image", "keep discard"},
		{"refused by the unpacker", fakeSupervisor{run: says(job.Failure, "", "", "corral-layer: not \x1b[31mso\n")}, good, `unpacking: not \x1b[31mso`, "discard"},
		{"no room", fakeSupervisor{run: says(job.Failure, job.LimitDisk, "", "")}, good, "too large (limit: disk)\nhint: raise", "discard"},
		{"another limit", fakeSupervisor{run: says(job.Failure, job.LimitMemory, "", "")}, good, "reached the limit of memory", "discard"},
		{"lost", fakeSupervisor{run: says(job.Lost, "", "", "")}, good, "status lost", "discard"},
		{"no totals", fakeSupervisor{run: says(job.Success, "", "", "")}, good, `"" is not the result line of the unpacker`, "discard"},
		{"other totals", fakeSupervisor{run: says(job.Success, "", unpack.Totals{Entries: 1}.String()+"\n", "")}, good, "another count", "discard"},
		{"endless talk", fakeSupervisor{run: says(job.Success, "", strings.Repeat("x", 1<<20), "")}, good, "is not the result line of the unpacker", "discard"},
		{"deaf", fakeSupervisor{run: func(io.Reader, io.Writer, io.Writer) job.Result { return job.Result{Status: job.Failure} }}, good, "status failure", "discard"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.host.dir = t.TempDir()
			i := &importer{name: "image", source: tt.source, host: &tt.host}
			if err := i.connect(); err != nil {
				t.Fatal(err)
			}
			err := i.make(t.Context())
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			var closed []string
			for _, keep := range tt.host.closed {
				closed = append(closed, map[bool]string{true: "keep", false: "discard"}[keep])
			}
			if got := strings.Join(closed, " "); got != tt.closed {
				t.Errorf("the session was closed with %q, want %q", got, tt.closed)
			}
			if tt.err != "" {
				return
			}
			if s := tt.host.runSpec; tt.host.spec.Import != "image" || s.Session != "0123" || s.Tool != job.ToolUnpack || strings.Join(s.Args, " ") != "unpack ." {
				t.Errorf("%+v, %+v", tt.host.spec, s)
			}
			if _, err := os.Stat(tt.host.dir + "/etc/passwd"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImportInterrupted checks that a signal ends the job and discards the session.
func TestImportInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	host := fakeSupervisor{run: func(io.Reader, io.Writer, io.Writer) job.Result {
		cancel()
		return job.Result{Status: job.Cancelled}
	}}
	i := &importer{name: "image", source: rootArchive(t, "a"), host: &host}
	if err := i.connect(); err != nil {
		t.Fatal(err)
	}
	if err := i.make(ctx); err == nil || err.Error() != "interrupted" || len(host.closed) != 1 || host.closed[0] {
		t.Errorf("%v, closed %v", err, host.closed)
	}
}

// TestImportLimits checks that the limits of the session bound the import.
func TestImportLimits(t *testing.T) {
	host := fakeSupervisor{dir: t.TempDir()}
	i := &importer{name: "image", source: rootArchive(t, "a", "b", "c"), host: &host, options: rootfsOptions{disk: 1 << 30, inodes: 2}}
	if err := i.connect(); err != nil {
		t.Fatal(err)
	}
	if err := i.make(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 2 files") {
		t.Errorf("got %v", err)
	}
	if host.spec.Disk != 1<<30 || host.spec.Inodes != 2 {
		t.Errorf("%+v", host.spec)
	}
}
