package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"corral/job"
)

// options returns options with a diagnostic log that fails the test.
func options(t testing.TB) Options {
	return Options{Instance: "test", Log: slog.New(slog.NewTextHandler(complaints{t}, nil))}
}

type complaints struct{ t testing.TB }

func (c complaints) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("the oldest file is removed when")) { // see TestExpiring
		c.t.Errorf("log: %s", b)
	}
	return len(b), nil
}

func open(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func newDir(t testing.TB) string { return filepath.Join(t.TempDir(), "audit") }

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// decide records that a job is about to run.
func decide(t testing.TB, l *Log, id string) uint64 {
	t.Helper()
	seq, err := l.Decided(&Decision{
		Who: Who{Instance: "test", Job: id, Peer: 1000}, Repo: "/srv/repo", Profile: "default", Limits: job.Defaults(),
		Claim: job.Claim{Tool: "run", Reason: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func finish(t testing.TB, l *Log, id string, of uint64) {
	t.Helper()
	if err := l.Finished(&Ending{Who: Who{Instance: "test", Job: id, Peer: 1000}, Of: of, Result: job.Result{Status: job.Success}}); err != nil {
		t.Fatal(err)
	}
}

// write records n jobs.
func write(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("job-%d", i+1)
		finish(t, l, id, decide(t, l, id))
	}
}

func openReader(t testing.TB, dir string) *Reader {
	t.Helper()
	r, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func verify(t testing.TB, dir string, anchors ...Anchor) *Report {
	t.Helper()
	report, err := openReader(t, dir).Verify(anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// sound verifies an audit log that must have no problems and no notes.
func sound(t testing.TB, dir string, records uint64) *Report {
	t.Helper()
	r := verify(t, dir)
	if !r.OK() || len(r.Notes) > 0 || r.Records != records || r.Last-r.First+1 != records {
		t.Fatalf("want %d records in order, got %+v", records, r)
	}
	return r
}

// records returns all records of an audit log.
func records(t testing.TB, dir string) []*Record {
	t.Helper()
	var all []*Record
	for l, err := range openReader(t, dir).Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Record()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestRecords(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	account := uint32(1<<32 - 2)
	who := Who{Instance: "main", Job: "job-1", Peer: 4294967294, Embedded: true, Account: &account}
	begin := time.Now()
	claim := job.Claim{
		Tool: "runtime_execute", Principal: "user:ada", Session: "s", Request: "r", Repo: "api", Runtime: "python",
		Decision: "d", Code: "c", Args: "a", Stdin: "i", Artifact: "runtime-1", Reason: "why",
	}
	if err := l.Instance(Started, "main", 12); err != nil {
		t.Fatal(err)
	}
	of, err := l.Decided(&Decision{Who: who, Repo: "/srv/ü", Common: "/srv/ö/.git", Dir: "a/b", Profile: "strict", Workspace: job.ReadOnly, Protect: job.ProtectAll, Terminal: true, Limits: job.Defaults(), Claim: claim})
	if err != nil || of != 2 {
		t.Fatal(of, err)
	}
	result := job.Result{
		Status: job.Failure, Signal: 9, ExitCode: -1, Limit: "memory", Cgroup: "v2", Sensitive: []string{"x"}, SensitiveMore: 2,
		Usage: job.Usage{Wall: 1, CPU: 2, User: 3, System: 4, PeakMemory: -1, PeakPIDs: 6, ReadBytes: 7, WriteBytes: 8},
	}
	refusal := &job.Refusal{Step: "cwd", Errno: 2, Message: "no"}
	for _, err := range []error{
		l.Finished(&Ending{Who: who, Of: of, Result: result}),
		l.Refused(Who{Instance: "main", Job: "job-2", Peer: 7, Account: &account}, "/no", refusal, claim),
		l.Denied(Who{Instance: "main", Peer: 7}, claim),
		l.Dropped(Who{Instance: "main", Peer: 7}, 5, begin),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := records(t, dir)
	wantClaims := map[string]string{
		"tool": "runtime_execute", "principal": "user:ada", "session": "s", "request": "r", "repo": "api", "runtime": "python",
		"decision": "d", "code": "c", "args": "a", "stdin": "i", "artifact": "runtime-1", "reason": "why",
	}
	d := r[1]
	if d.Event != Decided || d.Instance != "main" || d.Job != "job-1" || *d.Peer != who.Peer || !d.Embedded || d.Repo != "/srv/ü" || d.Dir != "a/b" ||
		d.Profile != "strict" || d.Workspace != "readonly" || d.Network != "none" || !d.Terminal || d.Common != "/srv/ö/.git" || d.Protect != "all" || fmt.Sprint(d.Claimed) != fmt.Sprint(wantClaims) {
		t.Errorf("decided: %+v", d)
	}
	if d.Limits["memory"] != 2<<30 || d.Limits["timeout_ns"] != -1 || d.Limits["open_files"] != 4096 || len(d.Limits) != job.NumLimits {
		t.Errorf("limits: %v", d.Limits)
	}
	f := r[2]
	if f.Event != Finished || f.Of != 2 || f.Status != "failure" || f.Signal != 9 || f.Limit != "memory" || f.Sensitive != 3 ||
		f.Usage["wall_ns"] != 1 || f.Usage["peak_memory"] != -1 || f.Usage["write_bytes"] != 8 || len(f.Usage) != 8 {
		t.Errorf("finished: %+v", f)
	}
	for n, x := range r[1:] {
		if embedded := n < 2; (x.Account != nil) != embedded || embedded && *x.Account != account {
			t.Errorf("account of a record %s: %v", x.Event, x.Account)
		}
	}
	if x := r[3]; x.Event != Refused || x.Step != "cwd" || x.Errno != 2 || x.Message != "no" || x.Repo != "/no" || x.Claimed["tool"] == "" {
		t.Errorf("refused: %+v", x)
	}
	if x := r[4]; x.Event != Denied || x.Job != "" || x.Claimed["reason"] != "why" {
		t.Errorf("denied: %+v", x)
	}
	if x := r[5]; x.Event != Dropped || x.Count != 5 || !x.Since.Equal(begin) {
		t.Errorf("dropped: %+v", x)
	}
	for i, x := range r {
		if x.Seq != uint64(i+1) || x.Time.Before(begin.Round(0).Add(-time.Second)) || x.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("record %d: %+v", i+1, x)
		}
	}
	if r := sound(t, dir, 6); r.Open != 0 || r.Files != 1 {
		t.Errorf("%+v", r)
	}
}

// TestHostileText: whatever bytes a client sends, a record is a single line of text that is safe to print, its fixed
// fields are the supervisor's, and a JSON parser returns the same text.
func TestHostileText(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	texts := []string{
		"\"},{\"seq\":9", "\n{\"seq\":3}\n", "\x1b[2J\x07", "\x00", "\xff\xfe", "\u2028\u2029", "\u202e", "\u009b31m", "\\u0000", "\U000e0001", "ü→😀", "\x7f",
		strings.Repeat("\x01", 5000), strings.Repeat("é", 300),
	}
	for _, s := range texts {
		if err := l.Denied(Who{Instance: "test"}, job.Claim{Tool: s, Reason: s}); err != nil {
			t.Fatal(err)
		}
	}
	sound(t, dir, uint64(len(texts)))
	for i, r := range records(t, dir) {
		for name, limit := range map[string]int{"tool": job.MaxClaim, "reason": 4 * job.MaxClaim} {
			want := strings.ToValidUTF8(texts[i], "\ufffd")
			escaped, _ := json.Marshal(texts[i])
			got := r.Claimed[name]
			if begin, cut := strings.CutSuffix(got, "…"); cut && len(escaped) > limit {
				want, got = want[:min(len(want), len(begin))], begin
			}
			if strings.Count(got, "\ufffd") > strings.Count(want, "\ufffd") { // one for each invalid byte
				want, got = strings.ReplaceAll(want, "\ufffd", ""), strings.ReplaceAll(got, "\ufffd", "")
			}
			if got != want || !utf8.ValidString(got) {
				t.Errorf("%s of %.80q: %.80q", name, texts[i], got)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, FileName(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\x00", "\x7f", "\u202e", "\u009b", "\u2028", "\xff", "\U000e0001"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("%q is in the file", bad)
		}
	}
}

// TestLongestLines: no record exceeds record.MaxLine, and records that close a job fit the space reserved for them.
func TestLongestLines(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	long := strings.Repeat("\x01", 1<<16)
	name := strings.Repeat("z", MaxName)
	account := uint32(1<<32 - 1)
	who := Who{Instance: name, Job: name, Peer: 1<<32 - 1, Embedded: true, Account: &account}
	var claim job.Claim
	for _, f := range claim.Fields() {
		*f.Value = long
	}
	limits := job.Limits{}
	for _, f := range limits.Fields() {
		*f.Value = -1 << 63
	}
	of, err := l.Decided(&Decision{Who: who, Repo: long, Common: long, Dir: long, Profile: long, Protect: job.ProtectHooks, Terminal: true, Limits: limits, Claim: claim})
	if err != nil {
		t.Fatal(err)
	}
	refusal := &job.Refusal{Step: long, Errno: -1 << 63, Message: long}
	longest := job.Usage{Wall: -1 << 63, CPU: -1 << 63, User: -1 << 63, System: -1 << 63, PeakMemory: -1 << 63, PeakPIDs: -1 << 63, ReadBytes: -1 << 63, WriteBytes: -1 << 63}
	for _, err := range []error{
		l.Refused(who, long, refusal, claim),
		l.Finished(&Ending{Who: who, Of: 1<<63 - 1, Refusal: refusal}),
		l.Finished(&Ending{Who: who, Of: of, Result: job.Result{Status: job.Status(long), Limit: long, Cgroup: long, Signal: -1 << 63, SensitiveMore: 1<<63 - 1, Usage: longest}, Reached: long}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for line, err := range openReader(t, dir).Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := line.Record()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(line.Text); n > MaxLine*3/4 || r.Event.Closes() && n+50 > closerMax {
			t.Errorf("%s: %d bytes", r.Event, n)
		}
	}
}

func TestNames(t *testing.T) {
	l := open(t, newDir(t), options(t))
	for _, bad := range []Who{{}, {Instance: "A"}, {Instance: `x"`}, {Instance: "x", Job: "job 1"}, {Instance: strings.Repeat("x", 33)}, {Instance: "x", Job: "ü"}} {
		if err := l.Denied(bad, job.Claim{}); !errors.Is(err, ErrName) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := Open(newDir(t), Options{Instance: "No"}); !errors.Is(err, ErrName) {
		t.Error(err)
	}
}

// TestTogether: goroutines of several Logs on one directory, like several supervisors, write a single chain.
func TestTogether(t *testing.T) {
	dir := newDir(t)
	for _, each := range []bool{false, true} {
		t.Run(fmt.Sprintf("each %v", each), func(t *testing.T) {
			o := options(t)
			o.Each, o.MaxSize = each, 20_000
			before := uint64(0)
			if r, err := OpenReader(dir); err == nil {
				before = r.Last()
				r.Close()
			}
			var logs []*Log
			for range 3 {
				logs = append(logs, open(t, dir, o))
			}
			var work sync.WaitGroup
			for i := range 12 {
				work.Go(func() { write(t, logs[i%3], 20) })
			}
			work.Wait()
			for _, l := range logs {
				closeLog(t, l)
			}
			r := verify(t, dir)
			count := map[Event]int{}
			for _, x := range records(t, dir)[before:] {
				count[x.Event]++
			}
			if !r.OK() || len(r.Notes) > 0 || r.Open != 0 || count[Decided] != 240 || count[Finished] != 240 || count[Rotated] < 5 {
				t.Errorf("%+v, %v", r, count)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	l := open(t, newDir(t), options(t))
	closeLog(t, l)
	if err := l.Denied(Who{Instance: "test"}, job.Claim{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestForeignDirectory: a directory that others can read or write is refused.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	for mode, ok := range map[os.FileMode]bool{0o700: true, 0o750: true, 0o701: false, 0o710: false, 0o740: false, 0o770: false, 0o755: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, options(t))
		if (err == nil) != ok {
			t.Errorf("%o: %v", mode, err)
		}
		if err == nil {
			closeLog(t, l)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, options(t)); err == nil {
		t.Error("a file was opened as an audit log")
	}
}

// TestRemovedFile: after its current file was removed, the audit log accepts no records.
func TestRemovedFile(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	write(t, l, 1)
	if err := os.Remove(filepath.Join(dir, FileName(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-9"}}); !errors.Is(err, errGone) {
		t.Error(err)
	}
}

// TestSyncFails: after an error of syncing no job is decided, but ends are still recorded.
func TestSyncFails(t *testing.T) {
	o := options(t)
	o.Each = true
	l, err := Open(newDir(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	of := decide(t, l, "job-1")
	broken := errors.New("the disk is broken")
	l.syncer.Fail(broken)
	if _, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-2"}}); !errors.Is(err, broken) {
		t.Errorf("decided: %v", err)
	}
	if err := l.Finished(&Ending{Who: Who{Instance: "test", Job: "job-1"}, Of: of}); !errors.Is(err, broken) {
		t.Errorf("finished: %v", err)
	}
	if got := records(t, l.dir.Name()); got[len(got)-1].Event != Finished {
		t.Errorf("the end was not recorded: %+v", got[len(got)-1])
	}
}

func TestRotation(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize, o.Keep = 8000, 3
	l := open(t, dir, o)
	held := decide(t, l, "held")
	write(t, l, 100)
	l.tidying.Wait()
	finish(t, l, "held", held)
	r := verify(t, dir)
	if !r.OK() || len(r.Notes) > 0 || r.Files != 4 || r.First == 1 || r.Open != 0 {
		t.Errorf("%+v", r)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, f := range names {
		if info, err := os.Stat(f); err != nil || info.Size() > 8500 || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", f, info, err)
		}
	}
	// Recovering open jobs does not need the files that were removed.
	closeLog(t, l)
	l = open(t, dir, o)
	if n, err := l.Recover(func(string) bool { return false }); n != 0 || err != nil {
		t.Errorf("%d lost, %v", n, err)
	}
	all := records(t, dir)
	if last := all[len(all)-1]; last.Seq != uint64(len(all))+r.First-1 {
		t.Errorf("%d records from %d on, but the last is %d", len(all), r.First, last.Seq)
	}
}

// TestExpiring: the file that the next rotation removes is named one file ahead, in the log and by Expiring, also after a restart.
func TestExpiring(t *testing.T) {
	dir := newDir(t)
	var said bytes.Buffer
	o := Options{Instance: "test", MaxSize: 8000, Keep: 3, Log: slog.New(slog.NewTextHandler(&said, nil))}
	l := open(t, dir, o)
	count := func() int {
		names, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		return len(names)
	}
	for n := 1; n < 4; n = count() {
		if got := l.Expiring(); got != "" || said.Len() > 0 {
			t.Fatalf("%q with %d files: %s", got, n, &said)
		}
		write(t, l, 1)
		l.tidying.Wait()
	}
	first := FileName(1)
	if got := l.Expiring(); got != first || !strings.Contains(said.String(), "file="+first) {
		t.Errorf("%q: %s", got, &said)
	}
	closeLog(t, l)
	l = open(t, dir, o)
	if got := l.Expiring(); got != first {
		t.Errorf("%q after a restart", got)
	}
	for n := 0; l.Expiring() == first; n++ {
		if write(t, l, 1); n > 100 {
			t.Fatal("the file is never removed")
		}
		l.tidying.Wait()
	}
	if _, err := os.Stat(filepath.Join(dir, first)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file that was named: %v", err)
	}
}

// TestRotationKept: a file removed by hand is reported, one removed by a rotation is not.
func TestRotationKept(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize = 8000
	l := open(t, dir, o)
	write(t, l, 60)
	closeLog(t, l)
	if r := verify(t, dir); !r.OK() || r.First != 1 || r.Files < 4 {
		t.Fatalf("%+v", r)
	}
	if err := os.Remove(filepath.Join(dir, FileName(1))); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "no rotation removed them") {
		t.Errorf("%+v", r)
	}
}

func TestAnchors(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	write(t, l, 3)
	r := sound(t, dir, 6)
	good, err := ParseAnchor(fmt.Sprintf("6:%s", strings.ToUpper(r.Hash)))
	if err != nil || good.Hash != r.Hash {
		t.Fatal(good, err)
	}
	write(t, l, 3)
	for _, tt := range []struct {
		anchor Anchor
		ok     bool
	}{{good, true}, {Anchor{Seq: 5, Hash: good.Hash}, false}, {Anchor{Seq: 77, Hash: good.Hash}, false}} {
		if r := verify(t, dir, tt.anchor); r.OK() != tt.ok {
			t.Errorf("%v: %+v", tt.anchor, r)
		}
	}
	for _, bad := range []string{"", "1", "1:", ":" + r.Hash, "0:" + r.Hash, "1:" + r.Hash[1:], "1:" + r.Hash + "00", "x:" + r.Hash, "1:" + strings.Repeat("g", 64)} {
		if a, err := ParseAnchor(bad); err == nil {
			t.Errorf("%q: %v", bad, a)
		}
	}
}

func TestLinesFrom(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize = 4000
	l := open(t, dir, o)
	write(t, l, 30)
	r := openReader(t, dir)
	for _, from := range []uint64{0, 1, 2, 25, r.Last(), r.Last() + 9} {
		var seqs []uint64
		for l, err := range r.Lines(from) {
			if err != nil {
				t.Fatal(err)
			}
			x, err := l.Record()
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, x.Seq)
		}
		want := min(max(from, 1), r.Last())
		if !slices.Contains(seqs, want) || !slices.IsSorted(seqs) || seqs[len(seqs)-1] != r.Last() || want > 20 && seqs[0] < want-15 {
			t.Errorf("from %d: %v", from, seqs)
		}
	}
}

func TestFollow(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize = 8000
	l := open(t, dir, o)
	write(t, l, 1)
	r := openReader(t, dir)
	next := uint64(3)
	write(t, l, 1)
	for line, err := range r.Follow(time.Millisecond) {
		if err != nil {
			t.Fatal(err)
		}
		x, err := line.Record()
		if err != nil || x.Seq != next {
			t.Fatalf("%+v, %v", x, err)
		}
		next++
		write(t, l, 1)
		if x.Event == Rotated {
			break
		}
	}
	if next < 10 {
		t.Errorf("%d records before the rotation", next)
	}
}

// TestUserBudget: the bytes that one user can add in a time are bounded, whatever causes the records, and the bucket
// refills; ends of decided jobs are recorded nevertheless, and other users and root are not affected.
func TestUserBudget(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.UserDaily = 8 * 64 << 10
	l := open(t, dir, o)
	now := time.Now()
	l.budgets.now = func() time.Time { return now }
	size := func() (n int64) {
		names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range names {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
		return n
	}
	decision := func(uid uint32) *Decision {
		return &Decision{
			Who: Who{Instance: "main", Job: "job-1", Peer: uid}, Repo: strings.Repeat("\x01", 4000), Dir: strings.Repeat("\x7f", 4000),
			Claim: job.Claim{Reason: strings.Repeat("\x02", 1024)},
		}
	}
	// flood runs failing jobs until one is refused, and returns the number before.
	flood := func() (jobs int) {
		for ; jobs < 10_000; jobs++ {
			of, err := l.Decided(decision(1001))
			if err != nil {
				if !errors.Is(err, ErrBudget) || of != 0 {
					t.Fatal(of, err)
				}
				return jobs
			}
			if err := l.Finished(&Ending{Who: Who{Instance: "main", Job: "job-1", Peer: 1001}, Of: of, Refusal: &job.Refusal{Step: "repo", Message: "no"}}); err != nil {
				t.Fatal(err)
			}
		}
		return jobs
	}
	jobs, maxBytes := flood(), int64(64<<10+MaxLine)
	if jobs < 3 || size() > maxBytes {
		t.Errorf("%d jobs at once made %d bytes", jobs, size())
	}
	var err error
	for n := 0; n < 100 && err == nil; n++ {
		err = l.Refused(Who{Instance: "main", Peer: 1001}, strings.Repeat("x", 4000), &job.Refusal{Step: "repo"}, job.Claim{})
	}
	if !errors.Is(err, ErrBudget) || size() > maxBytes {
		t.Errorf("refused requests: %v, %d bytes", err, size())
	}
	subordinate := decision(100005)
	subordinate.Payer = 1001
	if _, err := l.Decided(subordinate); !errors.Is(err, ErrBudget) || size() > maxBytes {
		t.Errorf("as a subordinate user id: %v, %d bytes", err, size())
	}
	for _, uid := range []uint32{1002, 0} {
		of, err := l.Decided(decision(uid))
		if err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
		if err := l.Finished(&Ending{Who: Who{Instance: "main", Job: "job-1", Peer: uid}, Of: of}); err != nil {
			t.Error(err)
		}
	}
	now = now.Add(24 * time.Hour)
	if again := flood(); again < jobs-1 {
		t.Errorf("%d jobs a day later, %d at first", again, jobs)
	}
	sound(t, dir, uint64(len(records(t, dir))))
}

// TestKeepForProtectsFiles: KeepFor protects files from rotation, whatever Keep says.
func TestKeepForProtectsFiles(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize, o.Keep, o.KeepFor = 8000, 2, time.Hour
	l := open(t, dir, o)
	write(t, l, 100)
	l.tidying.Wait()
	r := verify(t, dir)
	if !r.OK() || r.First != 1 || r.Files < 6 {
		t.Errorf("%+v", r)
	}
	// Two of the files become older than KeepFor.
	all, err := listFiles(l.root)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * time.Hour)
	for _, first := range all[:2] {
		if err := os.Chtimes(filepath.Join(dir, FileName(first)), past, past); err != nil {
			t.Fatal(err)
		}
	}
	write(t, l, 30)
	l.tidying.Wait()
	if r := verify(t, dir); !r.OK() || r.First != all[2] {
		t.Errorf("%+v, want the first record to be %d", r, all[2])
	}
}

// TestTidyDuringRotation: a rotation that starts while old files are read is not reported as a flaw: its file exists
// before the last record of its predecessor.
func TestTidyDuringRotation(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize = 8000
	l := open(t, dir, o)
	write(t, l, 50)
	l.tidying.Wait()
	next := filepath.Join(dir, FileName(l.at.Seq+2))
	if err := os.WriteFile(next, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.tidy(l.at.File, 1) // logging anything fails the test
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir); !r.OK() {
		t.Errorf("%+v", r)
	}
}
