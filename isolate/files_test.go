package isolate

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
	"corral/job"
)

// TestFiles: files of a request exist when the program starts, only for this job.
func TestFiles(t *testing.T) {
	f := sharedFront(t)
	large := strings.Repeat("0123456789abcdef", 1<<16)
	spec := f.Spec("sh", "-c", `
		stat -c '%n %a %U %s' /tmp/job /tmp/job/code /tmp/job/ü /dev/shm/x /home/job/y | sed 's/ 4[0-9]*$//; s/ [68]0$//'
		cat /tmp/job/ü; cat /tmp/job/code | cksum; umask`)
	spec.Files = []job.File{
		{Path: "/tmp/job/code", Content: large},
		{Path: "/tmp/job/ü", Content: "\x00\xff\n"},
		{Path: "/dev/shm/x"},
		{Path: "/home/job/y", Content: "1"},
	}
	want := "/tmp/job 700 job\n/tmp/job/code 600 job 1048576\n/tmp/job/ü 600 job 3\n/dev/shm/x 600 job 0\n" +
		"/home/job/y 600 job 1\n\x00\xff\n" + cksum(t, f, large) + "\n0022\n"
	if d := f.Run(spec); d.Out != want {
		t.Errorf("%q, want %q\n%s", d.Out, want, d.Err)
	}
	// Nothing of them is left for the next job.
	if got := f.Sh("ls /tmp /dev/shm /home/job"); strings.ContainsAny(got, "xy") || strings.Contains(got, "code") {
		t.Errorf("the next job sees %q", got)
	}
}

// cksum returns what cksum(1) prints for text on its standard input.
func cksum(t *testing.T, f *front, text string) string {
	t.Helper()
	l, err := f.Start(f.Spec("cksum"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.In.WriteString(text); err != nil {
		t.Error(err)
	}
	d, err := l.End()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(d.Out)
}

// TestFilesRefused: a job does not start if one of its files cannot be written. The job's own user writes them, so
// never where the job itself could not write.
func TestFilesRefused(t *testing.T) {
	f := sharedFront(t)
	f.Sh("mkdir dir; ln -s /etc link; ln -s gone planted; ln -s /tmp tmp; echo here >there")
	for _, tt := range []struct {
		name  string
		files []job.File
		errno unix.Errno // 0: the job starts
	}{
		{"nothing", nil, 0},
		{"in the repository, which the job may write to", []job.File{{Path: f.Repo + "/dir/new"}}, 0},
		{"a system directory", []job.File{{Path: "/usr/bin/x"}}, unix.EROFS},
		{"the root", []job.File{{Path: "/x"}}, unix.EROFS},
		{"a directory that cannot be made", []job.File{{Path: "/usr/x/y"}}, unix.EROFS},
		{"two directories to make", []job.File{{Path: "/tmp/a/b/c"}}, unix.ENOENT},
		{"twice", []job.File{{Path: "/tmp/x"}, {Path: "/tmp/x"}}, unix.EEXIST},
		{"a file that is there", []job.File{{Path: f.Repo + "/there"}}, unix.EEXIST},
		{"a link that was planted", []job.File{{Path: f.Repo + "/planted"}}, unix.EEXIST},
		{"behind a link that leads to the system", []job.File{{Path: f.Repo + "/link/x"}}, unix.EROFS},
		{"behind a link", []job.File{{Path: f.Repo + "/tmp/x"}}, 0},
		{"a file as a directory", []job.File{{Path: "/tmp/x"}, {Path: "/tmp/x/y"}}, unix.ENOTDIR},
		{"a directory", []job.File{{Path: "/tmp/job/x"}, {Path: "/tmp/job"}}, unix.EEXIST},
		{"process 1", []job.File{{Path: "/proc/1/oom_score_adj"}}, unix.EEXIST},
		{"a device", []job.File{{Path: "/dev/new"}}, unix.EROFS},
		{"a name that is too long", []job.File{{Path: "/tmp/" + strings.Repeat("x", 256)}}, unix.ENAMETOOLONG},
		{"more than fits", []job.File{{Path: "/tmp/x", Content: strings.Repeat("x", 2<<20)}}, unix.ENOSPC},
	} {
		spec := f.Spec("true")
		spec.Files, spec.Limits = tt.files, job.Limits{Tmp: 1 << 20}
		d, err := f.Try(spec)
		if tt.errno != 0 {
			refusedAt(t, tt.name, err, "files", tt.errno)
		} else if err != nil || d.Status != job.Success {
			t.Errorf("%s: %+v, %v", tt.name, d.Result, err)
		}
	}
	if got := f.Sh("cat there; ls"); got != "here\ndir\nlink\nplanted\nthere\ntmp" {
		t.Errorf("the repository was changed: %q", got)
	}
}

// TestMalformedPayload: payloads that no correct front-end writes are refused by the job's process, not parsed by the
// supervisor.
func TestMalformedPayload(t *testing.T) {
	f := sharedFront(t)
	const program = "/bin/true\x00"
	for _, tt := range []struct {
		name              string
		argc, envc, files uint32
		rest, step        string // step of the refusal; "" is none
	}{
		{"nothing", 1, 0, 0, program, ""},
		{"a file", 1, 0, 1, program + "/tmp/x\x00\x01\x00\x00\x00x\x00", ""},
		{"no program", 0, 0, 0, program, "payload"},
		{"a string short", 1, 1, 0, program, "payload"},
		{"a string without end", 1, 1, 0, program + "A=b", "payload"},
		{"a sum that overflows", 1 << 31, 1 << 31, 0, program, "payload"},
		{"more than the strings", 1, 0, 0, program + "x\x00", "files"},
		{"a file short", 1, 0, 2, program + "/tmp/x\x00\x01\x00\x00\x00x\x00", "files"},
		{"no file", 1, 0, 1, program, "files"},
		{"a file without a length", 1, 0, 1, program + "/tmp/x\x00\x00\x00", "files"},
		{"a relative path", 1, 0, 1, program + "x\x00\x00\x00\x00\x00\x00", "files"},
		{"content beyond the end", 1, 0, 1, program + "/tmp/x\x00\x02\x00\x00\x00x\x00", "files"},
		{"a length of all ones", 1, 0, 1, program + "/tmp/x\x00\xff\xff\xff\xffx\x00", "files"},
		{"content without its end", 1, 0, 1, program + "/tmp/x\x00\x01\x00\x00\x00xyz\x00", "files"},
		{"files without number", 1, 0, 1<<32 - 1, program + "/tmp/x\x00\x01\x00\x00\x00x\x00", "files"},
	} {
		head := binary.LittleEndian.AppendUint32(nil, 0x4c524f43)
		for _, n := range []uint32{tt.argc, tt.envc, tt.files} {
			head = binary.LittleEndian.AppendUint32(head, n)
		}
		payload, err := wire.Seal("payload", append(head, tt.rest...), 0)
		if err != nil {
			t.Fatal(err)
		}
		q := f.goodRequest()
		q.files[0].Close()
		q.files[0] = payload
		r, err := f.send(q)
		started := r.Outcome == wire.Exited && r.WaitStatus == 0
		if err != nil || started != (tt.step == "") || r.Step != tt.step || tt.step != "" && unix.Errno(r.Errno) != unix.EINVAL {
			t.Errorf("%s: %+v, %v, want a refusal at %q", tt.name, r, err, tt.step)
		}
	}
}
