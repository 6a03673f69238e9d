package audit

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestMain also plays the supervisor that a test kills: it writes jobs to an audit log and prints which are decided
// and finished.
func TestMain(m *testing.M) {
	if dir := os.Getenv("AUDIT_TEST_VICTIM"); dir != "" {
		err := beVictim(dir, os.Args[1], os.Args[2] == "each")
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
	if mount := os.Getenv("AUDIT_TEST_FULL"); mount != "" {
		if err := beFull(mount); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if what := os.Getenv("AUDIT_TEST_ROOM"); what != "" {
		if err := beShort(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if lock := os.Getenv("AUDIT_TEST_HOLDER"); lock != "" {
		fmt.Fprintln(os.Stderr, "holder:", beHolder(lock))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func beVictim(dir, instance string, each bool) error {
	l, err := Open(dir, Options{Instance: instance, Each: each, MaxSize: 40_000})
	if err != nil {
		return err
	}
	if _, err := l.Recover(func(name string) bool { return name != instance }); err != nil {
		return err
	}
	for i := 1; ; i++ {
		who := Who{Instance: instance, Job: "job-" + strconv.Itoa(i)}
		of, err := l.Decided(&Decision{Who: who, Repo: strings.Repeat("/long", 100), Claim: job.Claim{Tool: "run"}})
		if err != nil {
			return err
		}
		fmt.Println("decided", of)
		if err := l.Finished(&Ending{Who: who, Of: of}); err != nil {
			return err
		}
		fmt.Println("finished", of)
	}
}

// A child is a running victim; output receives the lines it printed, after its death.
type child struct {
	cmd    *exec.Cmd
	output chan []string
}

func startVictim(t *testing.T, dir, instance, how string) *child {
	t.Helper()
	c := &child{exec.Command("/proc/self/exe", instance, how), make(chan []string, 1)}
	c.cmd.Env = append(os.Environ(), "AUDIT_TEST_VICTIM="+dir)
	c.cmd.Stderr = os.Stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		var output []string
		for s := bufio.NewScanner(stdout); s.Scan(); {
			output = append(output, s.Text())
		}
		c.output <- output
	}()
	return c
}

func (c *child) kill() []string {
	_ = c.cmd.Process.Kill()
	output := <-c.output
	_ = c.cmd.Wait()
	return output
}

// TestKilled: supervisors that write at once are killed at random points and started again, many times. All records
// whose writing they were told succeeded are there, the chain has no gap, and each decided job is closed exactly
// once.
func TestKilled(t *testing.T) {
	dir := newDir(t)
	names := []string{"a", "b", "c"}
	printed := map[string]bool{}
	// On a busy machine a victim gets little done before it is killed; more rounds make up for that.
	for round := 0; round < sandboxtest.Scale(15) || round < 600 && (len(printed) == 0 || !enough(counted(records(t, dir)))); round++ {
		var children []*child
		for i, name := range names {
			how := []string{"group", "each"}[(round+i)%2]
			children = append(children, startVictim(t, dir, name, how))
		}
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // a random moment: there is nothing to wait for
		for _, i := range rand.Perm(len(children)) {
			for _, s := range children[i].kill() {
				printed[s] = true
			}
		}
	}
	o := options(t)
	o.Log = nil
	l := open(t, dir, o)
	if n, err := l.Recover(func(string) bool { return false }); err != nil || n > len(names) {
		t.Errorf("%d lost, %v", n, err)
	}
	r := verify(t, dir)
	if !r.OK() || r.Open != 0 || r.First != 1 {
		t.Errorf("%+v", r)
	}
	closed := map[uint64]int{}
	all := records(t, dir)
	for _, x := range all {
		switch x.Event {
		case Decided:
			delete(printed, fmt.Sprint("decided ", x.Seq))
			closed[x.Seq] += 0
		case Finished:
			delete(printed, fmt.Sprint("finished ", x.Of))
			closed[x.Of]++
		case Lost:
			closed[x.Of]++
		}
	}
	for output := range printed {
		t.Errorf("a supervisor printed %q, and the audit log has no such record", output)
	}
	for of, n := range closed {
		if n != 1 {
			t.Errorf("record %d is closed %d times", of, n)
		}
	}
	count := counted(all)
	t.Logf("%v, notes %q", count, r.Notes)
	if !enough(count) {
		t.Errorf("%v: too few records for this test to prove anything", count)
	}
}

func counted(list []*Record) map[Event]int {
	count := map[Event]int{}
	for _, x := range list {
		count[x.Event]++
	}
	return count
}

// enough reports whether a log holds enough of each kind of record for TestKilled to prove something.
func enough(count map[Event]int) bool {
	return count[Decided] >= 100 && count[Lost] > 0 && count[Rotated] > 0
}

// TestTorn: a partly written record, of any length, is cut off by the next supervisor to start, and by a running one.
func TestTorn(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	write(t, l, 2)
	path := filepath.Join(dir, FileName(1))
	line := appendLine(nil, l.at.Position, time.Now(), []byte(`"event":"denied","instance":"x","peer":1`))
	for n := 1; n <= len(line); n += 7 {
		put(t, path, line[:n])
		if r := verify(t, dir); !r.OK() || len(r.Notes) != 1+repairs(r.Notes) {
			t.Fatalf("%d bytes: %+v", n, r)
		}
		if n%2 == 0 {
			closeLog(t, open(t, dir, options(t)))
		}
		write(t, l, 1)
		all := records(t, dir)
		if x := all[len(all)-3]; x.Event != Repaired || x.CutBytes != int64(n) || x.Missing != 0 || x.Saved != "" {
			t.Fatalf("%d bytes: %+v", n, x)
		}
	}
	if r := verify(t, dir); !r.OK() {
		t.Errorf("%+v", r)
	}
}

// repairs counts the notes about repairs.
func repairs(notes []string) int {
	return strings.Count(strings.Join(notes, "\n"), "were cut off")
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(b)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerCut: after each state that a file system may show after a power cut, the audit log continues and records
// the damage.
func TestPowerCut(t *testing.T) {
	for _, tt := range []struct {
		name     string
		do       func(path, head string) error
		cut      bool // bytes were cut off
		saved    bool
		missing  uint64
		problems bool
	}{
		{"nothing", func(string, string) error { return nil }, false, false, 0, false},
		{"the head is older", func(_, head string) error {
			return os.WriteFile(head, (&headState{Position: Position{File: 1}}).Encode(), 0o600)
		}, false, false, 0, false},
		{"the head is empty", func(_, head string) error { return os.Truncate(head, 0) }, false, false, 0, false},
		{"the head is zeros", func(_, head string) error { return os.WriteFile(head, make([]byte, headSize), 0o600) }, false, false, 0, false},
		{"the head is gone", func(_, head string) error { return os.Remove(head) }, false, false, 0, false},
		{"the last line is torn", func(path, _ string) error { return shorten(path, 100) }, true, false, 1, true},
		{"the end is torn within a line", func(path, _ string) error { return shorten(path, 1300) }, true, false, 4, true},
		{"the file is empty", func(path, _ string) error { return os.Truncate(path, 0) }, false, false, 10, true},
		{"zeros in place of the end", func(path, _ string) error { return zeros(path, 100, 100) }, true, false, 1, true},
		{"zeros before the end, and the head is older", func(path, head string) error {
			old := (&headState{Position: Position{File: 1}}).Encode()
			return errors.Join(zeros(path, 1500, 900), os.WriteFile(head, old, 0o600))
		}, true, true, 0, true},
		{"zeros after the end", func(path, _ string) error { return zeros(path, 0, 5000) }, true, false, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newDir(t)
			l := open(t, dir, options(t))
			write(t, l, 5)
			closeLog(t, l)
			path, head := filepath.Join(dir, FileName(1)), filepath.Join(dir, HeadFile)
			if err := tt.do(path, head); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			o := options(t)
			o.Log = nil
			l = open(t, dir, o)
			if _, err := l.Recover(func(string) bool { return false }); err != nil {
				t.Fatal(err)
			}
			write(t, l, 1)
			var repaired Record
			for _, x := range records(t, dir) {
				if x.Event == Repaired {
					repaired = *x
				}
			}
			if repaired.CutBytes > 0 != tt.cut || repaired.Saved != "" != tt.saved || repaired.Missing != tt.missing {
				t.Errorf("%+v", repaired)
			}
			if r := verify(t, dir); r.OK() == tt.problems || r.Open != 0 {
				t.Errorf("%+v", r)
			}
			if tt.saved {
				b, err := os.ReadFile(filepath.Join(dir, repaired.Saved))
				if err != nil || string(b) != string(before[len(before)-int(repaired.CutBytes):]) {
					t.Errorf("%d bytes saved, %v", len(b), err)
				}
			}
		})
	}
}

func shorten(path string, n int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-n)
}

// zeros writes n zero bytes, starting from bytes before the end.
func zeros(path string, from, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, n), info.Size()-from)
	return err
}

// TestRecover: open jobs of dead supervisors are recorded as lost, once; those of live ones stay open.
func TestRecover(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.MaxSize = 6000
	l := open(t, dir, o)
	open1 := map[string]uint64{}
	for _, name := range []string{"dead", "alive", "test"} {
		for _, id := range []string{"job-1", "job-2"} {
			seq, err := l.Decided(&Decision{Who: Who{Instance: name, Job: id}})
			if err != nil {
				t.Fatal(err)
			}
			open1[name+"/"+id] = seq
		}
	}
	if err := l.Finished(&Ending{Who: Who{Instance: "dead", Job: "job-2"}, Of: open1["dead/job-2"]}); err != nil {
		t.Fatal(err)
	}
	write(t, l, 40) // so that the checkpoint is after them
	closeLog(t, l)
	for round, want := range []int{3, 0, 0} {
		l = open(t, dir, o)
		n, err := l.Recover(func(name string) bool { return name == "alive" })
		if n != want || err != nil {
			t.Errorf("round %d: %d lost, %v", round, n, err)
		}
		if l.at.Open != 2 {
			t.Errorf("round %d: %d open", round, l.at.Open)
		}
		closeLog(t, l)
	}
	var lost []string
	for _, x := range records(t, dir) {
		if x.Event == Lost {
			if open1[x.Instance+"/"+x.Job] != x.Of {
				t.Errorf("%+v", x)
			}
			lost = append(lost, x.Instance+"/"+x.Job)
		}
	}
	if want := []string{"dead/job-1", "test/job-1", "test/job-2"}; !slices.Equal(lost, want) {
		t.Errorf("%q, want %q", lost, want)
	}
	if r := verify(t, dir); !r.OK() || r.Open != 2 {
		t.Errorf("%+v", r)
	}
}

// TestCheckpoint: a start reads only what was written since the last checkpoint; an invalid checkpoint, or one of
// another audit log, is not used.
func TestCheckpoint(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	held := decide(t, l, "held")
	write(t, l, 400)
	alive := func(string) bool { return true }
	if _, err := l.Recover(alive); err != nil {
		t.Fatal(err)
	}
	c := l.read.ReadCheckpoint()
	if c.Seq != 801 || len(c.Open) != 1 || c.Open[held].Job != "held" {
		t.Fatalf("%+v", c)
	}
	good, err := os.ReadFile(filepath.Join(dir, CheckpointFile))
	if err != nil {
		t.Fatal(err)
	}
	l.o.Log = options(t).Log
	for name, bad := range map[string]string{
		"cut": string(good[:len(good)/2]), "empty": "", "other hash": strings.Replace(string(good), fmt.Sprintf("%x", c.Hash[:]), strings.Repeat("a", 64), 1),
		"beyond":  strings.Replace(string(good), fmt.Sprintf(`"Size":%d`, c.Size), fmt.Sprintf(`"Size":%d`, c.Size+1), 1),
		"no jobs": strings.Replace(string(good), `"Open":{`, `"Jobs":{`, 1), "a name that is none": strings.Replace(string(good), `"held"`, `"h\nld"`, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, CheckpointFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		o := options(t)
		o.Log = nil
		l := open(t, dir, o)
		if c := l.read.ReadCheckpoint(); c.Seq != 0 || len(c.Open) != 0 {
			t.Errorf("%s: %+v", name, c)
		}
		if n, err := l.Recover(alive); n != 0 || err != nil || l.at.Open != 1 {
			t.Errorf("%s: %d lost, %d open, %v", name, n, l.at.Open, err)
		}
	}
}

// TestFullDisk: promised records are written however full the disk is, no job is started, and the audit log stays
// intact.
func TestFullDisk(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	for _, fs := range []string{"tmpfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			if _, err := os.Stat("/dev/loop-control"); fs == "ext4" && err != nil {
				t.Skip("no loop devices: ", err) // in a guest, for example; tmpfs is tested there
			}
			if _, err := exec.LookPath("mkfs.ext4"); fs == "ext4" && err != nil {
				t.Skip(err)
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "AUDIT_TEST_FULL="+fs+" "+t.TempDir())
			cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // its mounts end with it
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// beFull fills the disk of an audit log. It must run in its own mount namespace.
func beFull(what string) error {
	fs, top, _ := strings.Cut(what, " ")
	if err := mountSmall(fs, top); err != nil {
		return err
	}
	dir := filepath.Join(top, "audit")
	const small = 64 << 10 // to force rotations
	l, err := Open(dir, Options{Instance: "test", MaxSize: small})
	if err != nil {
		return err
	}
	var open []uint64
	begin := func() error {
		seq, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-1"}, Repo: strings.Repeat("x", 1000)})
		if err == nil {
			open = append(open, seq)
		}
		return err
	}
	for range 50 {
		if err := begin(); err != nil {
			return err
		}
	}
	if err := fill(filepath.Join(top, "filler")); err != nil {
		return err
	}
	for err == nil && len(open) < 5000 {
		err = begin()
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "audit: no space left") || !strings.Contains(err.Error(), "\nhint: ") {
		return fmt.Errorf("after %d jobs: %w", len(open), err)
	}
	if err := fill(filepath.Join(top, "filler2")); err != nil {
		return err
	}
	err = nil
	for n := 0; n < 100 && err == nil; n++ { // the record may be shorter than the one that found no space
		err = l.Denied(Who{Instance: "test"}, job.Claim{Reason: strings.Repeat("\x01", 4096)})
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("denied on a full disk: %w", err)
	}
	// The longest possible records of ends.
	long := strings.Repeat("\x01", 1<<16)
	for _, of := range open {
		if err := l.Finished(&Ending{Who: Who{Instance: "test", Job: "job-1"}, Of: of, Refusal: &job.Refusal{Step: long, Message: long}}); err != nil {
			return fmt.Errorf("the end of record %d of %d: %w", of, len(open), err)
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	return checkFull(dir, len(open))
}

// mountSmall mounts a file system of a few megabytes.
func mountSmall(fs, top string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if fs == "tmpfs" {
		return unix.Mount("tmpfs", top, "tmpfs", 0, "size=4m,mode=0700")
	}
	image := filepath.Join(top, "image")
	out, err := exec.Command("sh", "-e", "-c", `truncate -s 12M "$1"; mkfs.ext4 -q "$1"; mount -o loop "$1" "$2"`, "sh", image, top).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// fill leaves no free byte on a file system.
func fill(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for n := 1 << 16; n > 0; {
		if _, err = f.Write(make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("fill: %w", err)
	}
	return f.Sync()
}

func checkFull(dir string, jobs int) error {
	r, err := OpenReader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	report, err := r.Verify()
	if err != nil {
		return err
	}
	if !report.OK() || report.Open != 0 || report.Records < uint64(2*jobs) || jobs < 51 {
		return fmt.Errorf("%d jobs: %+v", jobs, report)
	}
	return nil
}
