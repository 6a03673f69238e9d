package inside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPlanAppend: each field of a Plan is encoded at its offset.
func TestPlanAppend(t *testing.T) {
	p := Plan{
		Terminal: true, ReadOnly: true, Stdin: true, ExecFD: true, Wall: time.Second, TmpBytes: 2, TmpInodes: 3, Rows: 4, Cols: 5,
		Rlimits: []Rlimit{{unix.RLIMIT_CORE, 0, 1}, {unix.RLIMIT_NOFILE, 6, 7}}, Repo: "/srv/repo", Dir: "a/b", Kept: true, Common: "/srv/main/.git",
		Env: []string{"A=1", "B=2"},
	}
	b := p.Append()
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	for what, ok := range map[string]bool{
		"version": u32(0) == planVersion,
		"flags":   u32(4) == planTTY|planReadOnly|planStdin|planExecFD|planKept|planCommonFD,
		"numbers": u64(8) == 1e9 && u64(16) == 2 && u64(24) == 3,
		"limits":  u32(32) == 1<<unix.RLIMIT_CORE|1<<unix.RLIMIT_NOFILE && u64(planSoft+8*unix.RLIMIT_NOFILE) == 6 && u64(planHard+8*unix.RLIMIT_NOFILE) == 7,
		"window":  b[36] == 4 && b[38] == 5,
		"paths":   string(b[planPaths:]) == "/srv/repo\x00a/b\x00/srv/main/.git\x00A=1\x00B=2\x00",
	} {
		if !ok {
			t.Errorf("%s: %x", what, b)
		}
	}
}

// TestPlanWithoutRepo: the encoded plan has the flags for it, and the working directory below the root.
func TestPlanWithoutRepo(t *testing.T) {
	b := (&Plan{Repo: "/srv/repo", Dir: "tmp", RootDir: true, NoRepo: true}).Append()
	if flags := binary.LittleEndian.Uint32(b[4:]); flags != planNoRepo|planRootCwd || string(b[planPaths:]) != "/srv/repo\x00tmp\x00\x00" {
		t.Errorf("flags %d, %q", flags, b[planPaths:])
	}
}

// text returns the C string at the start of b.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// TestPlanPaths: paths of any length are cut so that each fits the stub's buffer.
func TestPlanPaths(t *testing.T) {
	if got := string((&Plan{Repo: "/r"}).Append()[planPaths:]); got != "/r\x00.\x00\x00" {
		t.Errorf("an empty Dir is encoded as %q", got)
	}
	long := strings.Repeat("x", 2*pathSize)
	b := (&Plan{Repo: long, Dir: long, Common: long, Env: []string{strings.Repeat("y", MaxEnv-1), "A=1"}}).Append()
	if len(b) != planSize || strings.Count(string(b[planPaths:]), strings.Repeat("x", pathSize-1)+"\x00") != planStrings {
		t.Error("a long path is not cut to the stub's maximum")
	}
}

// TestPrepareAndOrder: Prepare, Bind, Kept and Order are encoded at their offsets, and long strings are cut.
func TestPrepareAndOrder(t *testing.T) {
	b := Prepare{UID: 1000, Skip: 1 << 63, TmpBytes: 5, TmpInodes: 6, Groups: 3}.Append()
	if len(b) != prepareSize || binary.LittleEndian.Uint32(b[4:]) != 1000 || b[15] != 0x80 || b[16] != 5 || b[24] != 6 || b[40] != 3 {
		t.Errorf("prepare %x", b)
	}
	b = Bind{Source: "/a", Target: "/b"}.Append()
	if len(b) != bindSize || text(b[bindSource:]) != "/a" || text(b[bindTarget:]) != "/b" {
		t.Errorf("bind %x", b)
	}
	long := strings.Repeat("x", 2*pathSize)
	if b = (Bind{Source: long, Target: long}).Append(); len(b) != bindSize || b[bindTarget-1] != 0 || b[bindSize-1] != 0 {
		t.Error("a long path runs into the next field")
	}
	if b = (Kept{3, "rab\x00"}).Append(); len(b) != keptList+4 || b[4] != 3 || text(b[keptList:]) != "rab" {
		t.Errorf("kept %x", b)
	}
	if b = (Kept{1, strings.Repeat("x", 2*keptSize)}).Append(); len(b) != keptSize {
		t.Errorf("kept of %d bytes", len(b))
	}
	b = Order{Signal: 15, Everyone: true}.Append()
	if len(b) != orderSize || b[4] != 15 || b[8] != 1 {
		t.Errorf("order %x", b)
	}
}

// TestOwnerAndHolder: the request for a user namespace is encoded, and its answer decodes to a pid, an errno or
// ErrReport.
func TestOwnerAndHolder(t *testing.T) {
	if b := AppendOwner(1<<31 + 5); len(b) != ownerSize || binary.LittleEndian.Uint32(b[4:]) != 1<<31+5 {
		t.Errorf("owner %x", b)
	}
	for _, tt := range []struct {
		b    []byte
		pid  int
		want error
	}{
		{[]byte{1, 2, 0, 0}, 0x201, nil},
		{[]byte{0xff, 0xff, 0xff, 0xff}, 0, syscall.EPERM},
		{make([]byte, holderSize), 0, ErrReport},
		{[]byte{1, 0, 0}, 0, ErrReport},
		{make([]byte, holderSize+1), 0, ErrReport},
		{nil, 0, ErrReport},
	} {
		if pid, err := ReadHolder(tt.b); pid != tt.pid || !errors.Is(err, tt.want) {
			t.Errorf("%x: %d, %v", tt.b, pid, err)
		}
	}
}

// TestProbe: a Probe is encoded at its offsets, and its answer decodes to a Probed, an errno or ErrReport.
func TestProbe(t *testing.T) {
	b := Probe{Kind: ProbeOpen, UID: 5, Flags: 6, Resolve: 7, Path: "/a"}.Append()
	if len(b) != probePath+3 || b[4] != 3 || b[8] != 5 || b[16] != 6 || b[24] != 7 || text(b[probePath:]) != "/a" {
		t.Errorf("probe %x", b)
	}
	if b = (Probe{Path: strings.Repeat("x", 2*pathSize)}).Append(); len(b) != probeSize || b[probeSize-1] != 0 {
		t.Errorf("a long path: %d bytes", len(b))
	}
	found := make([]byte, ProbedSize)
	for i := range found {
		found[i] = byte(i)
	}
	copy(found, []byte{0, 0, 0, 0})
	want := Probed{
		Mode: 0x07060504, UID: 0x0b0a0908, GID: 0x0f0e0d0c, Dev: unix.Mkdev(0x13121110, 0x17161514), Ino: 0x1f1e1d1c1b1a1918,
		FSType: 0x2726252423222120, FSFlags: 0x2f2e2d2c2b2a2928, FreeBytes: 0x3736353433323130, FreeFiles: 0x3f3e3d3c3b3a3938,
	}
	if got, err := ReadProbed(found); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Received(append(found, "message"...)); err != nil || string(got) != "message" {
		t.Errorf("%q, %v", got, err)
	}
	for _, tt := range []struct {
		b    []byte
		want error
	}{
		{append([]byte{0xff, 0xff, 0xff, 0xff}, found[4:]...), syscall.EPERM},
		{append([]byte{1, 0, 0, 0}, found[4:]...), ErrReport},
		{found[:ProbedSize-1], ErrReport},
		{append(found, 0), ErrReport},
	} {
		if _, err := ReadProbed(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%x: %v, want %v", tt.b, err, tt.want)
		}
	}
}

// rawReport returns a report as a stub encodes it.
func rawReport(version, kind uint32, step string) []byte {
	b := make([]byte, reportSize)
	binary.LittleEndian.PutUint32(b, version)
	binary.LittleEndian.PutUint32(b[4:], kind)
	binary.LittleEndian.PutUint32(b[8:], 13)
	binary.LittleEndian.PutUint32(b[12:], 0x100)
	copy(b[16:], step)
	return b
}

// TestReadReport: reports of the wrong size, version or kind are refused, and Step is cut at the first unsafe byte.
func TestReadReport(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    []byte
		want Report // zero: an error is expected
	}{
		{"a failure", rawReport(planVersion, uint32(Failed), "no-new-privs"), Report{Failed, 13, 0x100, "no-new-privs"}},
		{"no NUL", rawReport(planVersion, uint32(Failed), strings.Repeat("x", stepSize)), Report{Failed, 13, 0x100, strings.Repeat("x", stepSize)}},
		{"escape", rawReport(planVersion, uint32(Failed), "cwd\x1b[2J"), Report{Failed, 13, 0x100, "cwd"}},
		{"capitals and high bytes", rawReport(planVersion, uint32(Exited), "\xffA"), Report{Exited, 13, 0x100, ""}},
		{"kind 0", rawReport(planVersion, 0, ""), Report{}},
		{"kind of the future", rawReport(planVersion, 99, ""), Report{}},
		{"other version", rawReport(planVersion+1, uint32(Hello), ""), Report{}},
		{"short", rawReport(planVersion, uint32(Hello), "")[1:], Report{}},
		{"long", append(rawReport(planVersion, uint32(Hello), ""), 0), Report{}},
		{"nothing", nil, Report{}},
	} {
		got, err := ReadReport(tt.b)
		if got != tt.want || (err != nil) != (tt.want == Report{}) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}

// TestReadRequest: a request round-trips, and one of the wrong size or version is refused.
func TestReadRequest(t *testing.T) {
	number, errno, err := ReadRequest(AppendRequest(1<<31, 12))
	if number != 1<<31 || errno != 12 || err != nil {
		t.Errorf("%d, %d, %v", number, errno, err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "short": AppendRequest(1, 0)[:11], "long": append(AppendRequest(1, 0), 0), "other version": make([]byte, requestSize),
	} {
		if _, _, err := ReadRequest(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// FuzzReport: any message decodes to a report of a known kind with a harmless step, or to an error.
func FuzzReport(f *testing.F) {
	f.Add(rawReport(planVersion, uint32(Exited), "exec"))
	f.Add(rawReport(planVersion, 9, "\x1b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadReport(b)
		if err != nil {
			return
		}
		if len(r.Step) > stepSize || strings.Trim(r.Step, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || r.Kind < Hello || r.Kind > Door {
			t.Errorf("%+v", r)
		}
	})
}

// FuzzRequest: a request that is accepted has exactly one encoding.
func FuzzRequest(f *testing.F) {
	f.Add(AppendRequest(1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		number, errno, err := ReadRequest(b)
		if err == nil && !bytes.Equal(AppendRequest(number, errno), b) {
			t.Errorf("%x", b)
		}
	})
}
