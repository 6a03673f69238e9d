package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"corral/job"
)

// TestCutAfterEscaping: texts are cut by their escaped length, between characters, and end in an ellipsis then.
func TestCutAfterEscaping(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"0123456789", "0123456789"},
		{"0123456789a", "0123456…"},
		{"\x01\x01", `\u0001…`},
		{"äöüäö", "äöüäö"},
		{"äöüäöü", "äöü…"},
		{"\"\"\"\"\"\"", `\"\"\"…`},
		{"\xff", `\ufffd`},
	} {
		if got := string(appendCut(nil, tt.in, 10)); got != tt.want || len(got) > 10 {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestPaths: records of two paths differ, and each path can be read back, whatever bytes it has.
func TestPaths(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("/\x01\x02", 1300)
	for _, path := range []string{
		"/srv/app", "/srv/\xff", "/srv/\xfe", "/srv/\ufffd", `/srv/\xff`, `"/srv/\xff"`, "/srv/\n", "/srv/\xed\xb3\xbf",
		long + "a", long + "b", strings.Repeat("/\xff", 2047) + "a",
	} {
		who := Who{Instance: "a"}
		refused, err := who.body(Refused, 0, who.refused(path, &job.Refusal{}, job.Claim{}))
		if err != nil {
			t.Fatal(err)
		}
		decided, err := who.body(Decided, 0, (&Decision{Repo: path, Common: path, Dir: path}).fields)
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{refused, decided} {
			line := appendLine(nil, Position{}, time.Unix(0, 0), body)
			if other, ok := seen[string(line)]; ok {
				t.Errorf("%q and %q have the same record", path, other)
			}
			seen[string(line)] = path
			var r Record
			if err := json.Unmarshal(line, &r); err != nil || r.RepoPath() != path {
				t.Errorf("%q: read back as %q, %v", path, r.RepoPath(), err)
			}
			if !utf8.Valid(line) || len(line) > MaxLine*3/4 {
				t.Errorf("%q: a line of %d bytes", path, len(line))
			}
		}
	}
}

// TestHead: a head is read back as it was written, and nothing else is accepted.
func TestHead(t *testing.T) {
	s := headState{Position{5, Hash{1, 2}, 4, 1 << 40}, 3, 1 << 41}
	b := s.Encode()
	got, err := parseHead(b)
	if err != nil || got != s || len(b) != headSize {
		t.Errorf("%+v, %v, %d bytes", got, err, len(b))
	}
	for i := range b {
		for _, c := range []byte{'x', ' ', '\n', 0} {
			bad := slices.Clone(b)
			bad[i] = c
			if got, err := parseHead(bad); err == nil && string(got.Encode()) != string(b) {
				t.Errorf("byte %d as %q: %+v", i, c, got)
			}
		}
	}
}

// FuzzLine: no line makes the reader panic, and an accepted line begins as this package begins lines.
func FuzzLine(f *testing.F) {
	at := Position{File: 1}
	for _, d := range []*Decision{{Who: Who{Instance: "test", Job: "job-1", Peer: 1000}, Repo: "/srv/repo", Claim: job.Claim{Tool: "run"}}, {Who: Who{Instance: "a"}}} {
		body, err := d.body(Decided, 0, d.fields)
		if err != nil {
			f.Fatal(err)
		}
		line := appendLine(nil, at, time.Now(), body)
		at = at.After(&fixedFields{Seq: at.Seq + 1, Event: Decided}, line)
		f.Add(line)
		f.Add(line[:len(line)/2])
	}
	lost, err := Who{Instance: "test", Job: "job-1"}.body(Lost, 1, func(*encoder) {})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendLine(nil, at, time.Now(), lost))
	f.Add([]byte(`{"seq":1,"prev":"` + strings.Repeat("0", 64) + `","time":"` + timeLayout + `","event":"x","instance":"y"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		first, ok := parseLine(line)
		if !ok {
			return
		}
		e := &encoder{}
		e.word("event", string(first.Event))
		e.word("instance", first.Instance)
		if first.Job != "" {
			e.word("job", first.Job)
		}
		if bytes.Contains(line, []byte(`,"of":`)) && first.Of != 0 {
			e.number("of", int64(first.Of))
		}
		s := fieldScanner{b: line}
		s.take(len(`{"seq":`))
		s.number()
		s.take(len(`,"prev":"`) + 64 + len(`","time":"`))
		stamp := s.take(len(timeLayout))
		again := fmt.Appendf(nil, `{"seq":%d,"prev":"%x","time":"%s",%s`, first.Seq, first.Prev, stamp, e.b)
		if !bytes.HasPrefix(line, again) && first.Of != 0 || bytes.ContainsAny(line, "\n\x00\x1b\x7f") {
			t.Errorf("\n%q\nwas parsed as\n%q", line, again)
		}
	})
}

// TestNetwork: a record says what a job may reach and what it has reached, which is a text that nobody has checked: it cannot become
// anything else of the record, nor make the record longer than what is reserved for it.
func TestNetwork(t *testing.T) {
	who := Who{Instance: "a", Job: "job-1"}
	for asked, want := range map[string]string{"": "none", Allowed: "allowed", "npm example.org:8443": "npm example.org:8443", "\x1b\",\"x\":\"": "\x1b\",\"x\":\""} {
		body, err := who.body(Decided, 0, (&Decision{Network: asked}).fields)
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if line := appendLine(nil, Position{}, time.Unix(0, 0), body); json.Unmarshal(line, &r) != nil || r.Network != want {
			t.Errorf("%q: %s", asked, line)
		}
	}
	long := strings.Repeat("\x01", 8<<10)
	for _, reached := range []string{"", `{"connections":1,"denied":0}`, `","status":"success`, "\xff\n\x00", long} {
		e := &Ending{Who: who, Of: 1, Reached: reached, Result: job.Result{Status: job.Failure, Limit: long, Cgroup: long}}
		body, err := e.body(Finished, e.Of, e.fields)
		if err != nil {
			t.Fatal(err)
		}
		line := appendLine(nil, Position{}, time.Unix(0, 0), body)
		var r Record
		if err := json.Unmarshal(line, &r); err != nil || r.Status != "failure" || len(line) > closerMax || len(r.Reached) > maxReached {
			t.Errorf("%.40q: %.200s: %v", reached, line, err)
		}
		if reached == `{"connections":1,"denied":0}` && r.Reached != reached {
			t.Errorf("%q was recorded as %q", reached, r.Reached)
		}
	}
}
