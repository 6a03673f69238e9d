package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/job"
)

// A codec encodes and decodes one message, for tests that treat all of them alike.
type codec struct {
	name  string
	op    Op
	full  []byte                                        // a message with no field left at zero
	again func(body []byte, tag uint32) ([]byte, error) // decodes a body and encodes it again
}

func codecOf[T any, M Fields[T]](full M) codec {
	return codec{fmt.Sprintf("%T", *full), full.op(), Encode(full, 7), func(body []byte, tag uint32) ([]byte, error) {
		m, err := Decode[T, M](body)
		return Encode(M(&m), tag), err
	}}
}

var codecs = []codec{
	codecOf(fullRun),
	codecOf(&Denied{fullClaim}),
	codecOf(&State{1<<32 - 2}),
	codecOf(&Answer{"no\nhint: do"}),
	codecOf(fullOpen),
	codecOf(&CloseSession{Keep: true, ID: "0f"}),
	codecOf(&Closed{true}),
	codecOf((*session)(fullSession)),
	codecOf(&image{Name: "debian", Bytes: 1, Made: time.Unix(0, 2)}),
	codecOf(&Note{"uids was changed"}),
	codecOf(&Drain{Undo: true}),
	codecOf(&Kill{"job-1"}),
	codecOf(&Connect{IPv6: true, Port: 8000, ID: "0f"}),
	codecOf(&Ports{"0f"}),
	codecOf(&PortList{[]uint16{80, 65535}, true}),
	codecOf(&RemoveImage{"debian"}),
	codecOf(&Signal{Number: 15, Everyone: true}),
	codecOf(&Welcome{Instance: "main", FrontUID: 1, FrontGID: 1<<32 - 1}),
	codecOf(fullResult),
	codecOf(&Entry{
		Job: "job-1", UID: 2, Started: 3, Memory: -1, CPU: 5, MemoryNow: 4, Repo: "/srv/a\nb", Tool: "t", Principal: "p", Artifact: "runtime-app-1",
	}),
	codecOf(&Denial{At: 1, UID: 2, Job: "job-1", Repo: "app", Reason: "no", Tool: "t", Runtime: "r", Principal: "p", Request: "q"}),
	codecOf(&Fact{Name: "cgroup.kill", Present: true, Detail: "freezer"}),
}

// fullLimits returns limits that all differ.
func fullLimits() job.Limits {
	var l job.Limits
	for n, f := range l.Fields() {
		*f.Value = int64(n + 1)
	}
	l.MilliCPUs, l.Wall = job.Unlimited, 1<<62
	return l
}

var fullRun = &Run{
	Flags: flagsEnd - 1, Limits: fullLimits(), Rows: 24, Cols: 1<<16 - 1, Profile: "strict", Session: "0f", Tool: "changes", Repo: "/srv/ü", Dir: "a/../b",
	Common: "/srv/main/.git", Network: "npm example.org:8443", Worktrees: "/srv/b/.git\x00/srv/c/.git\x00",
	Bounds: "oa\x00r.\x00", Claim: fullClaim,
}

var fullOpen = &Open{
	Flags: FlagReadOnly | FlagOverlay | FlagRepo | FlagCommon | OpenRoot | OpenLasting, Disk: 1, Inodes: -1, Idle: 3, Repo: "/srv/ü",
	Common: "/srv/main/.git", Profile: "strict", Name: "mine", Image: "debian", Import: "other", Network: "none",
}

var fullSession = &job.Session{
	ID: "0f", Name: "mine", Repo: "/srv/a\nb", Image: "debian", Workspace: job.Overlay, Root: true, Kept: true, UID: 2,
	Opened: time.Unix(0, 3), Used: time.Unix(0, 4), Jobs: 5, Disk: 6, DiskUsed: 7,
}

var fullClaim = job.Claim{
	Tool: "run", Principal: "user:ada", Session: "s\x00", Request: "0f", Repo: "api", Runtime: "python", Decision: "d", Code: "c",
	Args: "a", Stdin: "i", Artifact: "runtime-1", Reason: "\xff",
}

var fullResult = &Result{
	Outcome: Refused, WaitStatus: 0x8b, OOM: true, UserMemory: 9, PIDsMax: true, Incomplete: true, LayerFull: true, FilesFull: true, ReadOnly: true, Left: true, TmpFull: 5, More: 3, Errno: 13,
	Wall: 1, CPU: 2, User: 3, System: 4, PeakMemory: -1, PeakPIDs: 6, ReadBytes: 7, WriteBytes: 8,
	Job: "job-1", Cgroup: "hybrid", Step: "cwd", Message: "no", Hint: "do", Sensitive: ".git/config\x00\xff\x00", Missed: "a/b", Mounts: "data\x00",
	Reached: `{"denied":1}`,
}

// TestRoundTrip: an encoded message decodes to the same fields, as encoding it again shows.
func TestRoundTrip(t *testing.T) {
	for _, c := range codecs {
		head, body, err := ReadHeader(c.full)
		if err != nil || head != (Header{c.op, 7}) {
			t.Errorf("%s: header %+v, %v", c.name, head, err)
			continue
		}
		got, err := c.again(body, 7)
		if err != nil || !bytes.Equal(got, c.full) {
			t.Errorf("%s: %v\n got %x\nwant %x", c.name, err, got, c.full)
		}
	}
	_, body, _ := ReadHeader(Encode(fullRun, 7))
	if m, err := Decode[Run](body); err != nil || m != *fullRun {
		t.Errorf("run: %+v, %v", m, err)
	}
	_, body, _ = ReadHeader(Encode(fullResult, 7))
	if m, err := Decode[Result](body); err != nil || m != *fullResult {
		t.Errorf("result: %+v, %v", m, err)
	}
}

// TestLengthIsExact: a message that is a byte shorter or longer is malformed.
func TestLengthIsExact(t *testing.T) {
	for _, c := range codecs {
		body := c.full[headerSize:]
		for n := range len(body) {
			if _, err := c.again(body[:n], 0); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: the first %d of %d bytes: %v", c.name, n, len(body), err)
			}
		}
		if _, err := c.again(append(bytes.Clone(body), 0), 0); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: one byte more: %v", c.name, err)
		}
	}
}

// set returns a message's body with one byte changed.
func set(message []byte, at int, value byte) []byte {
	body := bytes.Clone(message[headerSize:])
	body[at] = value
	return body
}

// TestMalformed: a field that is out of range makes its message malformed.
func TestMalformed(t *testing.T) {
	// The strings of Run follow the flags, the limits and the terminal's size.
	const profile = 4 + job.NumLimits*8 + 2*2
	denied := Encode(&Denied{fullClaim}, 1)
	signal, fact := Encode(&Signal{Number: 9}, 1), Encode(&Fact{Name: "x"}, 1)
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"run: unknown flag", second(Decode[Run](set(Encode(fullRun, 1), 1, flagsEnd>>8)))},
		{"run: flag of the highest bit", second(Decode[Run](set(Encode(fullRun, 1), 3, 0x80)))},
		{"run: a descriptor of no directory", second(Decode[Run](Encode(&Run{Flags: FlagCommon}, 1)[headerSize:]))},
		{"run: long profile", second(Decode[Run](set(Encode(fullRun, 1), profile, MaxName+1)))},
		{"run: string beyond the end", second(Decode[Run](set(Encode(fullRun, 1), profile+1, 0xff)))},
		{"denied: long tool", second(Decode[Denied](set(denied, 1, job.MaxClaim/256+1)))},
		{"open: flag of a run", second(Decode[Open](Encode(&Open{Flags: FlagTerminal}, 1)[headerSize:]))},
		{"open: flag of the future", second(Decode[Open](Encode(&Open{Flags: openEnd}, 1)[headerSize:]))},
		{"connect: port 0", second(Decode[Connect](Encode(&Connect{ID: "0f"}, 1)[headerSize:]))},
		{"connect: family 2", second(Decode[Connect](set(Encode(&Connect{Port: 1}, 1), 0, 2)))},
		{"ports: more 2", second(Decode[PortList](set(Encode(&PortList{}, 1), 0, 2)))},
		{"ports: too many", second(Decode[PortList](append([]byte{0, MaxPorts + 1}, make([]byte, 2*MaxPorts+2)...)))},
		{"close: keep 2", second(Decode[CloseSession](set(Encode(&CloseSession{}, 1), 0, 2)))},
		{"session: workspace of the future", second(ReadSession(set(Encode(Session(fullSession), 1), 1, byte(job.Overlay)+1)))},
		{"signal: 65", second(Decode[Signal](set(signal, 0, 65)))},
		{"signal: ends for one", second(Decode[Signal](set(signal, 1, 2)))},
		{"signal: flag of the future", second(Decode[Signal](set(signal, 1, 4)))},
		{"fact: present 2", second(Decode[Fact](set(fact, 0, 2)))},
		{"result: outcome 0", second(Decode[Result](set(Encode(fullResult, 1), 0, 0)))},
		{"result: outcome of the future", second(Decode[Result](set(Encode(fullResult, 1), 0, byte(outcomeEnd))))},
		{"result: flag of the future", second(Decode[Result](set(Encode(fullResult, 1), 1, 128)))},
		{"result: left 2", second(Decode[Result](set(Encode(fullResult, 1), 2, 2)))},
	} {
		if !errors.Is(tt.err, ErrMalformed) {
			t.Errorf("%s: %v", tt.name, tt.err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestHeader: a short header is malformed, and another version is refused.
func TestHeader(t *testing.T) {
	for n := range headerSize {
		if _, _, err := ReadHeader(Encode(Empty(OpHello), 1)[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	other := Encode(Empty(OpHello), 1)
	other[0]++
	if _, _, err := ReadHeader(other); err == nil || errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "one release") {
		t.Errorf("another version: %v", err)
	}
}

// TestLongTextIsCut: texts of the supervisor's own messages are cut to the maximum that the other side accepts.
func TestLongTextIsCut(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	r := Result{Outcome: Exited, Job: long, Cgroup: long, Step: long, Message: long, Hint: long, Sensitive: long, Missed: long, Mounts: long, Reached: long}
	message := Encode(&r, 1)
	if len(message) > MaxMessage {
		t.Errorf("%d bytes", len(message))
	}
	got, err := Decode[Result](message[headerSize:])
	if err != nil || len(got.Job) != MaxName || len(got.Message) != MaxText || len(got.Sensitive) != MaxSensitive {
		t.Errorf("%d, %d, %d: %v", len(got.Job), len(got.Message), len(got.Sensitive), err)
	}
	run := Run{Profile: long, Repo: long, Dir: long, Common: long, Network: long, Worktrees: long, Bounds: job.Bounds(long)}
	for _, f := range run.Claim.Fields() {
		*f.Value = long
	}
	if n := len(Encode(&run, 1)); n > MaxMessage {
		t.Errorf("run: %d bytes", n)
	}
	cut, err := Decode[Run](Encode(&run, 1)[headerSize:])
	if err != nil || len(cut.Claim.Tool) != job.MaxClaim || len(cut.Claim.Reason) != 4*job.MaxClaim {
		t.Errorf("%d, %d: %v", len(cut.Claim.Tool), len(cut.Claim.Reason), err)
	}
}

// TestDescriptors: the number of descriptors follows from the flags.
func TestDescriptors(t *testing.T) {
	for _, tt := range []struct {
		flags uint32
		want  int
	}{
		{0, 3},
		{FlagReadOnly, 3},
		{FlagStdin, 4},
		{FlagRepo, 4},
		{FlagStdin | FlagRepo, 5},
		{FlagTerminal, 1},
		{FlagTerminal | FlagRepo, 2},
		{FlagTerminal | FlagRepo | FlagCommon, 3},
		{flagsEnd - 1, 4},
		{(flagsEnd - 1) &^ FlagTerminal, 6},
	} {
		if got := (&Run{Flags: tt.flags}).Descriptors(); got != tt.want || got > MaxDescriptors {
			t.Errorf("flags %#x: %d, want %d", tt.flags, got, tt.want)
		}
	}
}

// TestOutcomeNames: each outcome has a name of its own, and a number that is not one is shown as such.
func TestOutcomeNames(t *testing.T) {
	seen := map[string]bool{}
	for o := Exited; o < outcomeEnd; o++ {
		if name := o.String(); seen[name] || strings.HasPrefix(name, "outcome ") {
			t.Errorf("%d: %q", o, name)
		}
		seen[o.String()] = true
	}
	for o, want := range map[Outcome]string{0: "outcome 0", outcomeEnd: "outcome " + strconv.Itoa(int(outcomeEnd)), 255: "outcome 255"} {
		if got := o.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
