package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A victim is an audit log to tamper with: 17 jobs in three files.
type victim struct {
	t     *testing.T
	dir   string
	names []string
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{t: t, dir: newDir(t)}
	o := options(t)
	o.MaxSize = 5000
	l := open(t, v.dir, o)
	write(t, l, 17)
	closeLog(t, l)
	v.names, _ = filepath.Glob(filepath.Join(v.dir, "*.jsonl"))
	if len(v.names) < 3 || !verify(t, v.dir).OK() {
		t.Fatalf("unsuitable audit log: %d files", len(v.names))
	}
	return v
}

// edit changes the lines of one file.
func (v *victim) edit(file int, change func([][]byte) [][]byte) {
	v.t.Helper()
	b, err := os.ReadFile(v.names[file])
	if err != nil {
		v.t.Fatal(err)
	}
	rows := change(bytes.SplitAfter(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")))
	b = bytes.TrimSuffix(bytes.Join(rows, nil), []byte("\n"))
	if err := os.WriteFile(v.names[file], append(b, '\n'), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// otherHash changes the first digit of the hash in the second line, whichever it is.
func otherHash(rows [][]byte) [][]byte {
	at := bytes.Index(rows[1], []byte(`"prev":"`)) + len(`"prev":"`)
	if rows[1][at]--; rows[1][at] < '0' || rows[1][at] == 'a'-1 {
		rows[1][at] = 'f'
	}
	return rows
}

// in returns an edit that changes one line.
func in(row int, old, replacement string) func([][]byte) [][]byte {
	return func(rows [][]byte) [][]byte {
		changed := regexp.MustCompile(old).ReplaceAll(rows[row], []byte(replacement))
		if bytes.Equal(changed, rows[row]) {
			panic(old + " is not in " + string(rows[row]))
		}
		rows[row] = changed
		return rows
	}
}

// TestTampering: Verify finds each of these changes to an audit log, and reports the given problem.
func TestTampering(t *testing.T) {
	last := func(rows [][]byte) int { return len(rows) - 1 }
	for _, tt := range []struct {
		name string
		do   func(*victim)
		want string
	}{
		{"nothing", func(*victim) {}, ""},
		{"a text", func(v *victim) { v.edit(0, in(2, `/srv/repo`, `/srv/other`)) }, "000000000001.jsonl:3: record 3 was changed"},
		{"a number", func(v *victim) { v.edit(0, in(0, `"peer":1000`, `"peer":1001`)) }, ":1: record 1 was changed"},
		{"a time", func(v *victim) { v.edit(0, in(0, `"time":"2`, `"time":"3`)) }, ":1: record 1 was changed"},
		{"an event", func(v *victim) { v.edit(0, in(1, `"finished"`, `"lost"`)) }, ":2: record 2 was changed"},
		{"an instance", func(v *victim) { v.edit(0, in(1, `"instance":"test"`, `"instance":"best"`)) }, ":2: record 2 was changed"},
		{"a job", func(v *victim) { v.edit(0, in(1, `"job-1"`, `"job-2"`)) }, ":2: record 2 was changed"},
		{"what it closes", func(v *victim) { v.edit(0, in(1, `"of":1`, `"of":7`)) }, "it closes record 7, which is not an open job"},
		{"white space", func(v *victim) { v.edit(0, in(1, `,"peer"`, `, "peer"`)) }, ":2: record 2 was changed"},
		{"a space at the end", func(v *victim) { v.edit(0, in(1, "\n", " \n")) }, ":2: not a record"},
		{"a carriage return", func(v *victim) { v.edit(0, in(1, "\n", "\r\n")) }, ":2: not a record"},
		{"an escape", func(v *victim) { v.edit(0, in(0, `/srv/repo`, `\u002fsrv/repo`)) }, ":1: record 1 was changed"},
		{"a seq", func(v *victim) { v.edit(0, in(1, `"seq":2`, `"seq":9`)) }, ":2: records 2 to 8 are missing"},
		{"a seq with a zero", func(v *victim) { v.edit(0, in(1, `"seq":2`, `"seq":02`)) }, ":2: not a record"},
		{"a hash", func(v *victim) { v.edit(0, otherHash) }, ":1: record 1 was changed"},
		{"a hash in capitals", func(v *victim) { v.edit(0, in(1, `"prev":"..`, `"prev":"AB`)) }, ":2: not a record"},
		{"the first hash", func(v *victim) { v.edit(0, in(0, `"prev":"0`, `"prev":"1`)) }, ":1: record 1 was changed"},
		{"a control character", func(v *victim) { v.edit(0, in(1, `success`, "succ\x01ss")) }, ":2: not a record"},
		{"a line", func(v *victim) { v.edit(0, func(r [][]byte) [][]byte { return slices.Delete(r, 1, 2) }) }, ":2: records 2 to 2 are missing"},
		{"two lines joined", func(v *victim) { v.edit(0, in(1, "\n", "")) }, ":3: records 3 to 3 are missing"},
		{"an empty line", func(v *victim) { v.edit(0, in(1, "\n", "\n\n")) }, ":3: not a record"},
		{"the first line", func(v *victim) { v.edit(0, func(r [][]byte) [][]byte { return r[1:] }) }, "records before 2 are missing"},
		{"lines swapped", func(v *victim) { v.edit(0, func(r [][]byte) [][]byte { r[1], r[2] = r[2], r[1]; return r }) }, ":3: record 2 after record 3: inserted or moved"},
		{"a line twice", func(v *victim) { v.edit(0, func(r [][]byte) [][]byte { return slices.Insert(r, 2, r[1]) }) }, ":3: record 2 after record 2"},
		{"a line from elsewhere", func(v *victim) { v.edit(0, func(r [][]byte) [][]byte { return slices.Insert(r, 4, r[1]) }) }, ":5: record 2 after record 4"},
		{"a line with its seq adapted", func(v *victim) {
			v.edit(0, func(r [][]byte) [][]byte {
				return slices.Insert(r, 2, bytes.Replace(r[1], []byte(`"seq":2`), []byte(`"seq":3`), 1))
			})
		}, "record 2 was changed"},
		{"a line with seq and hash adapted", func(v *victim) {
			v.edit(0, func(r [][]byte) [][]byte {
				return slices.Insert(r, 2, bytes.Replace(r[2], []byte("success"), []byte("failure"), 1))
			})
		}, ":4: record 3 after record 3"},
		{"the last line of a file", func(v *victim) {
			v.edit(1, func(r [][]byte) [][]byte { return r[:last(r)] })
		}, "the file ends here without a rotation"},
		{"a file", func(v *victim) { v.must(os.Remove(v.names[1])) }, "the previous file ends with record"},
		{"the first file", func(v *victim) { v.must(os.Remove(v.names[0])) }, "no rotation removed them"},
		{"the last file", func(v *victim) { v.must(os.Remove(v.names[len(v.names)-1])) }, "are missing at the end"},
		{"every file", func(v *victim) {
			for _, f := range v.names {
				v.must(os.Remove(f))
			}
		}, "are missing at the end"},
		{"files swapped", func(v *victim) {
			v.must(os.Rename(v.names[0], v.dir+"/x"))
			v.must(os.Rename(v.names[1], v.names[0]))
			v.must(os.Rename(v.dir+"/x", v.names[1]))
		}, "the previous file ends with record"},
		{"the last line", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return r[:last(r)] })
		}, "are missing at the end"},
		{"the text of the last line", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return in(last(r), "success", "failure")(r) })
		}, "was changed: the head has another hash"},
		{"the last file is emptied", func(v *victim) { v.must(os.Truncate(v.names[len(v.names)-1], 0)) }, "are missing at the end"},
		{"the head", func(v *victim) { v.must(os.Remove(filepath.Join(v.dir, HeadFile))) }, "the head cannot be read"},
		{"the head is emptied", func(v *victim) { v.must(os.Truncate(filepath.Join(v.dir, HeadFile), 0)) }, "the head cannot be read"},
		{"an older head", func(v *victim) {
			b, _ := os.ReadFile(filepath.Join(v.dir, HeadFile))
			b[headSize-2] = "10"[b[headSize-2]&1]
			v.must(os.WriteFile(filepath.Join(v.dir, HeadFile), b, 0o600))
		}, "the head has another hash"},
		{"a long line", func(v *victim) { v.edit(0, in(1, `success`, strings.Repeat("x", 3*MaxLine))) }, ":2: not a record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			tt.do(v)
			found := problems(verify(t, v.dir))
			if tt.want == "" && found != "" || tt.want != "" && !strings.Contains(found, tt.want) {
				t.Errorf("got %s\nwant %s", found, tt.want)
			}
		})
	}
}

func problems(r *Report) string {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// TestEveryByte: changing, removing or doubling any byte of an audit log is detected.
func TestEveryByte(t *testing.T) {
	sandboxtest.OneGoroutine(t)
	dir := newDir(t)
	l := open(t, dir, options(t))
	write(t, l, 2)
	closeLog(t, l)
	path := filepath.Join(dir, FileName(1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// ext4 writes a file to disk when it is closed after it was truncated to nothing, as os.WriteFile does.
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	try := func(what string, i int, b []byte) {
		t.Helper()
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := file.Truncate(int64(len(b))); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, dir); r.OK() {
			t.Errorf("byte %d %s: not noticed", i, what)
		}
	}
	for i := range whole {
		for _, bit := range []byte{1, 0x80} {
			b := slices.Clone(whole)
			b[i] ^= bit
			try("changed", i, b)
		}
		try("removed", i, slices.Delete(slices.Clone(whole), i, i+1))
		try("doubled", i, slices.Insert(slices.Clone(whole), i, whole[i]))
		if i > 0 {
			try("is the end", i, whole[:i])
		}
	}
}

// TestChangesOutliveSupervisors: changes are still found after supervisors were started again and wrote more records.
func TestChangesOutliveSupervisors(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*victim)
		want string
	}{
		{"the first record", func(v *victim) { v.edit(0, in(0, `/srv/repo`, `/srv/other`)) }, "record 1 was changed"},
		{"in the last file", func(v *victim) { v.edit(len(v.names)-1, in(0, "success|/srv/repo", "failure")) }, "was changed"},
		{"the last record", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return in(len(r)-1, "success", "failure")(r) })
		}, "was changed"},
		{"the last record is dropped", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return r[:len(r)-1] })
		}, "records are missing before this one"},
		{"a record is dropped", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return slices.Delete(r, 1, 2) })
		}, "are missing before this one"},
		{"a line of garbage", func(v *victim) {
			v.edit(len(v.names)-1, func(r [][]byte) [][]byte { return slices.Insert(r, 1, []byte("garbage\n")) })
		}, "are missing before this one"},
		{"the last file is removed", func(v *victim) { v.must(os.Remove(v.names[len(v.names)-1])) }, "records are missing before this one"},
		{"a file is removed", func(v *victim) { v.must(os.Remove(v.names[1])) }, "the previous file ends with record"},
		{"the checkpoint is removed", func(v *victim) { v.must(os.Remove(filepath.Join(v.dir, CheckpointFile))) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newVictim(t)
			tt.do(v)
			o := options(t)
			o.Log, o.MaxSize = nil, 5000
			for range 3 {
				l := open(t, v.dir, o)
				if n, err := l.Recover(func(string) bool { return false }); err != nil || n > 1 {
					t.Errorf("%d lost, %v", n, err)
				}
				write(t, l, 3)
				closeLog(t, l)
			}
			r := verify(t, v.dir)
			if found := problems(r); tt.want == "" && found != "" || !strings.Contains(found, tt.want) {
				t.Errorf("got %swant %s", found, tt.want)
			}
			all := records(t, v.dir)
			if len(all) < 18 {
				t.Errorf("%d records", len(all))
			}
		})
	}
}
