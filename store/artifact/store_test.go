package artifact

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// A clock is advanced by the test.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func openStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Open(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestNames: names on disk are part of the format.
func TestNames(t *testing.T) {
	if got := [...]string{dirName, quotaName, quotaMagic, tempPrefix, gonePrefix}; got != [...]string{"artifacts", ".usage", "corral 1", ".tmp-", ".del-"} {
		t.Errorf("%q: stores of earlier versions have others", got)
	}
}

// usageOf returns the usage that is recorded in a store.
func usageOf(t testing.TB, dir string) usage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, dirName, quotaName))
	if err != nil || len(b) != len(quotaMagic)+16 || string(b[:len(quotaMagic)]) != quotaMagic {
		t.Fatalf("%q, %v", b, err)
	}
	return usage{int64(binary.LittleEndian.Uint64(b[8:])), int64(binary.LittleEndian.Uint64(b[16:]))}
}

func total(list []entry) usage {
	u := usage{count: int64(len(list))}
	for _, a := range list {
		u.bytes += a.Bytes
	}
	return u
}

// record returns the record of a successful job.
func record() *job.Record {
	return &job.Record{
		Request: &job.Request{Dir: "sub"}, Created: time.Now(), Status: job.Success,
		Decision: job.Decision{Hash: strings.Repeat("d", 64), Args: strings.Repeat("a", 64), Code: strings.Repeat("c", 64)},
	}
}

// mine returns the options of most tests.
func mine() BeginOptions {
	return BeginOptions{Repo: "my.repo", Runtime: "shell", Principal: "user:ada", Persist: true}
}

// put runs a job that writes two texts.
func put(t testing.TB, s *Store, b BeginOptions, stdout, stderr string) *Output {
	t.Helper()
	out := s.Begin(b)
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(e, stderr)
		e.Close()
	}()
	if _, err := io.WriteString(o, stdout); err != nil {
		t.Error(err)
	}
	o.Close()
	<-done
	out.Finish(record())
	return out
}

var ada = Reader{Principal: "user:ada", Repos: []string{"my.repo"}}

// content returns the streams of an artifact.
func content(s *Store, r Reader, handle string) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	err = s.Copy(r, handle, &o, &e)
	return o.String(), e.String(), err
}

// entries returns the names in a store, without the quota's file.
func entries(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, dirName))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if e.Name() != quotaName {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestArtifact(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now})
	out := put(t, s, mine(), "hello\nworld", "oops\n")
	got := out.Captured()
	if got.Handle == "" || got.Handle != out.Handle() || got.Reason != "" {
		t.Fatalf("%+v", got)
	}
	if want := fmt.Sprintf("runtime-my_repo-%d-", c.now().UnixMilli()); !strings.HasPrefix(got.Handle, want) || len(got.Handle) != len(want)+16 {
		t.Errorf("handle %s", got.Handle)
	}
	if got.Stdout != (StreamCapture{Bytes: 11, Lines: 2}) || got.Stderr != (StreamCapture{Bytes: 5, Lines: 1}) {
		t.Errorf("%+v", got)
	}
	stdout, stderr, err := content(s, ada, got.Handle)
	if stdout != "hello\nworld" || stderr != "oops\n" || err != nil {
		t.Errorf("%q %q %v", stdout, stderr, err)
	}
	if list := entries(t, dir); len(list) != 1 || list[0] != got.Handle {
		t.Errorf("in the store: %q", list)
	}
	for name, mode := range map[string]os.FileMode{
		"": 0o700, "/" + got.Handle: 0o700, "/" + got.Handle + "/manifest.json": 0o600,
		"/" + got.Handle + "/stdout.gz": 0o600, "/" + got.Handle + "/stderr.gz": 0o600, "/.usage": 0o600,
	} {
		info, err := os.Lstat(filepath.Join(dir, dirName) + name)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestManifest(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, TTL: 2 * time.Hour})
	out := put(t, s, mine(), "hello\n", "")
	text, err := os.ReadFile(filepath.Join(dir, dirName, out.Handle(), manifestName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"version":1`, `"artifactId":"` + out.Handle() + `"`, `"repoId":"my.repo"`, `"runtime":"shell"`, `"principal":"user:ada"`,
		`"argsHash":"aaaa`, `"codeSha256":"cccc`, `"relativeCwd":"sub"`, `"exitCode":0`, `"signal":null`, `"durationMs":`,
		`"stdoutBytes":6`, `"stderrBytes":0`, `"policyAuditHash":"dddd`, `"totalStdoutBytes":6`,
		`"stdoutSha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"`,
		`"stderrSha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`,
		`"createdAt":"2026-05-01T12:00:00Z"`, `"expiresAt":"2026-05-01T14:00:00Z"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, tt := range []struct {
		status       job.Status
		code, signal int
		want         string
	}{
		{job.Failure, 3, 0, `"exitCode":3,"signal":null`},
		{job.Failure, -1, 15, `"exitCode":null,"signal":"SIGTERM"`},
		{job.Failure, -1, 40, `"exitCode":null,"signal":"SIG40"`},
		{job.Timeout, -1, 0, `"exitCode":null,"signal":null`},
	} {
		out := s.Begin(mine())
		o, e, err := out.Streams()
		if err != nil {
			t.Fatal(err)
		}
		o.Close()
		e.Close()
		r := record()
		r.Status, r.Result.ExitCode, r.Result.Signal, r.Decision.Code = tt.status, tt.code, tt.signal, ""
		out.Finish(r)
		text, _ := os.ReadFile(filepath.Join(dir, dirName, out.Handle(), manifestName))
		if !strings.Contains(string(text), tt.want) || !strings.Contains(string(text), `"codeSha256":null`) {
			t.Errorf("no %s in %s", tt.want, text)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, o := range []Options{{TTL: -1}, {MaxCount: -1}, {MaxBytes: -1}, {StreamBytes: 10}, {StreamBytes: 2 << 30}} {
		if s, err := Open(f, o); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, dirName)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(f, Options{}); err == nil {
		s.Close()
		t.Error("a symbolic link was followed")
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{ReadOnly: true})
	if list, err := s.List(Reader{Owner: true}, 10); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	handle, _ := newHandle("x", time.Now())
	if _, err := s.Query(t.Context(), Query{Handle: handle}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if got := put(t, s, mine(), "x", "").Captured(); got.Handle != "" || got.Reason == "" || got.Stdout.Bytes != 1 {
		t.Errorf("%+v", got)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("created %v", list)
	}
}

func TestNoStore(t *testing.T) {
	var s *Store
	if got := put(t, s, mine(), "x", "").Captured(); got.Handle != "" || got.Reason == "" || got.Stdout.Bytes != 1 {
		t.Errorf("%+v", got)
	}
	s.Close()
}

func TestTTL(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, TTL: time.Hour})
	old := put(t, s, mine(), "old", "").Handle()
	c.advance(30 * time.Minute)
	young := put(t, s, mine(), "young", "").Handle()
	c.advance(30 * time.Minute)
	if _, err := s.Query(t.Context(), Query{Reader: ada, Handle: old}); !errors.Is(err, ErrExpired) {
		t.Errorf("for its owner: %v", err)
	}
	if _, err := s.Query(t.Context(), Query{Reader: Reader{Principal: "user:eve"}, Handle: old}); !errors.Is(err, ErrNotFound) {
		t.Errorf("for another principal: %v", err)
	}
	if list, _ := s.List(ada, 10); len(list) != 1 || list[0].ArtifactID != young {
		t.Errorf("listed: %v", list)
	}
	s.disk.Sweep(context.Background())
	if list := entries(t, dir); len(list) != 1 || list[0] != young {
		t.Errorf("after the sweep: %q", list)
	}
	if _, err := s.Query(t.Context(), Query{Reader: ada, Handle: old}); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the sweep: %v", err)
	}
	// The TTL is that of the store that committed the artifact, not of a store opened later.
	s2 := openStore(t, dir, Options{Now: c.now, TTL: time.Minute})
	s2.disk.Sweep(context.Background())
	if got, _, err := content(s2, ada, young); got != "young" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestQuotaOfCount(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, MaxCount: 5})
	var handles []string
	for i := range 12 {
		c.advance(time.Second)
		handles = append(handles, put(t, s, mine(), fmt.Sprint(i), "").Handle())
		for k, h := range handles {
			got, _, err := content(s, ada, h)
			switch gone := k <= i-5; {
			case gone && !errors.Is(err, ErrNotFound):
				t.Fatalf("after %d, artifact %d: %q, %v", i, k, got, err)
			case !gone && (err != nil || got != fmt.Sprint(k)):
				t.Fatalf("after %d, artifact %d: %q, %v", i, k, got, err)
			}
		}
	}
}

func TestQuotaOfBytes(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	const maxBytes = 200 << 10
	s := openStore(t, dir, Options{Now: c.now, MaxBytes: maxBytes})
	for i := range 40 {
		c.advance(time.Second)
		if got := put(t, s, mine(), strings.Repeat("x", 1000*i), "").Captured(); got.Handle == "" {
			t.Fatal(got.Reason)
		}
		list, err := s.disk.List()
		if err != nil {
			t.Fatal(err)
		}
		if u := total(list); u.bytes > maxBytes || i > 30 && u.bytes < maxBytes/2 || usageOf(t, dir) != u {
			t.Fatalf("stored %+v, recorded %+v", u, usageOf(t, dir))
		}
	}
	tiny := openStore(t, t.TempDir(), Options{MaxBytes: 10 << 10})
	if got := put(t, tiny, mine(), "x", "").Captured(); got.Handle != "" || !strings.Contains(got.Reason, "larger than the quota") {
		t.Errorf("%+v", got)
	}
}

// TestInvalidUsageFile: an invalid usage file does no harm and is corrected.
func TestInvalidUsageFile(t *testing.T) {
	for _, nonsense := range []string{"", "x", strings.Repeat("\xff", 24), quotaMagic + strings.Repeat("\x00", 16), quotaMagic + strings.Repeat("\xff", 16)} {
		c, dir := newClock(), t.TempDir()
		s := openStore(t, dir, Options{Now: c.now, MaxCount: 4})
		for range 3 {
			put(t, s, mine(), "x", "")
		}
		if err := os.WriteFile(filepath.Join(dir, dirName, quotaName), []byte(nonsense), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := put(t, s, mine(), "x", "").Captured(); got.Handle == "" {
			t.Errorf("%q: %s", nonsense, got.Reason)
		}
		s.disk.Sweep(context.Background())
		if got := usageOf(t, dir).count; got != 4 || len(entries(t, dir)) != 4 {
			t.Errorf("%q: %d counted of %d", nonsense, got, len(entries(t, dir)))
		}
	}
}

func TestSweepKeepsRunningOutputs(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	out := s.Begin(mine())
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write(bytes.Repeat([]byte("0123456789abcdef"), 20<<10)); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, 10*time.Second, "its directory is there while it runs", func() bool { // another goroutine reads what was written
		list := entries(t, dir)
		return len(list) == 1 && strings.HasPrefix(list[0], tempPrefix)
	})
	dead := filepath.Join(dir, dirName, tempPrefix+"dead")
	gone := filepath.Join(dir, dirName, gonePrefix+"gone")
	for _, d := range []string{dead, gone} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"stdout.gz", "not of an artifact"} {
			if err := os.WriteFile(filepath.Join(d, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := openStore(t, dir, Options{})
	other.disk.Sweep(context.Background())
	if list := entries(t, dir); len(list) != 1 || !strings.HasPrefix(list[0], tempPrefix+"runtime-") {
		t.Fatalf("after the sweep: %q", list)
	}
	o.Close()
	e.Close()
	out.Finish(record())
	if got, _, err := content(other, ada, out.Handle()); len(got) != 320<<10 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestFsyncEach(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{FsyncEach: true})
	for _, text := range []string{"short", strings.Repeat("long", 100<<10)} {
		got, _, err := content(s, ada, put(t, s, mine(), text, "").Handle())
		if got != text || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}
