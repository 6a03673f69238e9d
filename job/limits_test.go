package job

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits Limits
		want   string // the field that is refused, "" if none
	}{
		{"zero", Limits{}, ""},
		{"defaults", Defaults(), ""},
		{"minimum", Limits{Memory: minMemory, MilliCPUs: 10, PIDs: 2, Wall: time.Millisecond, Tmp: 1 << 16, TmpInodes: 16, Disk: 1, Inodes: 1, FileSize: 1, OpenFiles: 32}, ""},
		{"unlimited", Limits{MilliCPUs: Unlimited, Wall: Unlimited, Disk: Unlimited, Inodes: Unlimited, FileSize: Unlimited}, ""},
		{"memory cannot be lifted", Limits{Memory: Unlimited}, "memory"},
		{"pids cannot be lifted", Limits{PIDs: Unlimited}, "pids"},
		{"open files cannot be lifted", Limits{OpenFiles: Unlimited}, "open files"},
		{"little memory", Limits{Memory: minMemory - 1}, "memory"},
		{"all memory", Limits{Memory: 1<<63 - 1}, "memory"},
		{"negative", Limits{Disk: -2}, "disk"},
		{"smallest integer", Limits{Wall: -1 << 63}, "timeout"},
		{"a century", Limits{Wall: 100 * 365 * 24 * time.Hour}, "timeout"},
		{"a microsecond", Limits{Wall: time.Microsecond}, "timeout"},
		{"one process", Limits{PIDs: 1}, "pids"},
		{"no descriptors", Limits{OpenFiles: 2}, "open files"},
	} {
		expect(t, tt.name, tt.limits.Check(), tt.want)
	}
}

// expect fails the test unless err is a refusal of the limit want, or nil if want is "".
func expect(t *testing.T, name string, err error, want string) {
	t.Helper()
	var refusal *Refusal
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (!errors.As(err, &refusal) || refusal.Step != "limits" || !strings.HasPrefix(refusal.Message, want+":")):
		t.Errorf("%s: %v, want a refusal because of %s", name, err, want)
	}
}

func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		name          string
		limits, under Limits
		want          string
	}{
		{"no ceiling", Limits{Memory: 1 << 40, Wall: Unlimited}, Limits{}, ""},
		{"at the ceiling", Limits{Memory: 5, PIDs: 7}, Limits{Memory: 5, PIDs: 7}, ""},
		{"above", Limits{Memory: 6}, Limits{Memory: 5}, "memory"},
		{"unlimited is above", Limits{Wall: Unlimited}, Limits{Wall: time.Hour}, "timeout"},
		{"unlimited ceiling", Limits{Wall: Unlimited, Disk: 9}, Limits{Wall: Unlimited, Disk: Unlimited}, ""},
		{"the last field", Limits{OpenFiles: 9}, Limits{OpenFiles: 8}, "open files"},
	} {
		expect(t, tt.name, tt.limits.Within(tt.under), tt.want)
	}
}

func TestOr(t *testing.T) {
	got := Limits{Memory: 1, Wall: Unlimited}.Or(Defaults())
	want := Defaults()
	want.Memory = 1
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Limits{}).Or(Limits{}); got != (Limits{}) {
		t.Errorf("zero or zero: %+v", got)
	}
}

// TestPrivate: what bounds the private directories is memory, unless they have limits of their own.
func TestPrivate(t *testing.T) {
	for _, tt := range []struct {
		limits       Limits
		bytes, files int64
	}{
		{Defaults(), 2 << 30, 131072},
		{Limits{Memory: 8 << 30, Tmp: Unlimited, TmpInodes: Unlimited}, 8 << 30, 524288},
		{Limits{Memory: 64 << 20, Tmp: Unlimited, TmpInodes: Unlimited}, 64 << 20, 65536},
		{Limits{Memory: 1 << 30, Tmp: 5, TmpInodes: 6}, 5, 6},
		{Defaults().AtMost(Limits{Tmp: 7, TmpInodes: 8}), 7, 8},
	} {
		if bytes, files := tt.limits.Private(); bytes != tt.bytes || files != tt.files {
			t.Errorf("%+v: %d bytes, %d files", tt.limits, bytes, files)
		}
	}
}

// TestNoSpace: a session is no way out for a directory that is in memory there too.
func TestNoSpace(t *testing.T) {
	const mapped = "a file that it had mapped into memory became shorter, or had no space left in its directory"
	for _, tt := range []struct {
		result     Result
		text, hint string
	}{
		{Result{}, "", ""},
		{Result{Limit: LimitMemory}, "", ""},
		{
			Result{Limit: LimitTmp, FullDirs: []string{"/home", "/dev/shm"}},
			"no space left in /home, /dev/shm",
			"raise the limits tmp and memory, or run it in a session, whose /tmp and home directory are on disk",
		},
		{Result{Limit: LimitTmp, FullDirs: []string{"/dev/shm"}, Signal: 7}, "no space left in /dev/shm", "raise the limits tmp and memory"},
		{Result{Signal: 7}, mapped, "see df /dev/shm /tmp, and the limits tmp and memory"},
		{Result{ExitCode: 135}, mapped, "see df /dev/shm /tmp, and the limits tmp and memory"},
		{Result{Limit: LimitDisk, Signal: 7}, "", ""},
	} {
		if text, hint := tt.result.NoSpace(); text != tt.text || hint != tt.hint {
			t.Errorf("%+v: %q, %q", tt.result, text, hint)
		}
	}
}

func TestAtMost(t *testing.T) {
	ceilings := Limits{Memory: 5, Wall: time.Hour, Disk: Unlimited}
	got := Limits{Memory: 6, PIDs: 7, Wall: Unlimited, Disk: Unlimited, Tmp: 8}.AtMost(ceilings)
	if want := (Limits{Memory: 5, PIDs: 7, Wall: time.Hour, Disk: Unlimited, Tmp: 8}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := Defaults().AtMost(ceilings).Within(ceilings); err != nil {
		t.Error(err)
	}
}

// TestFields: each limit is in the table exactly once, and its default is a valid value.
func TestFields(t *testing.T) {
	var l Limits
	for i, f := range l.Fields() {
		*f.Value = int64(i + 1)
	}
	all := reflect.ValueOf(l)
	for i := range all.NumField() {
		if all.Field(i).Int() != int64(i+1) {
			t.Errorf("%s: %+v", all.Type().Field(i).Name, l)
		}
	}
	if all.NumField() != NumLimits {
		t.Errorf("%d limits, %d in the table", all.NumField(), NumLimits)
	}
	defaults := Defaults()
	for _, f := range defaults.Fields() {
		if v := *f.Value; v == 0 || v == Unlimited && !f.Liftable {
			t.Errorf("%s: default %d", f.Name, v)
		}
	}
}

func TestWorkspace(t *testing.T) {
	for word, want := range map[string]Workspace{"": Direct, "direct": Direct, "readonly": ReadOnly} {
		got, err := ParseWorkspace(word)
		if err != nil || got != want || word != "" && got.String() != word {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
	for _, word := range []string{"Direct", NoRepo.String()} {
		if _, err := ParseWorkspace(word); err == nil {
			t.Errorf("%q was accepted", word)
		}
	}
}

func TestRefusal(t *testing.T) {
	if got := (&Refusal{Message: "no", Hint: "do"}).Error(); got != "no\nhint: do" {
		t.Errorf("%q", got)
	}
	if got := (&Refusal{Message: "no"}).Error(); got != "no" {
		t.Errorf("%q", got)
	}
}

// TestLimitUnits: a refusal shows values in the units that options take.
func TestLimitUnits(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{Limits{Memory: 1 << 40}.Within(Limits{Memory: 512 << 20}), "memory: 1TiB is more than the operator allows, which is 512MiB"},
		{Limits{Wall: Unlimited}.Within(Limits{Wall: time.Minute}), "timeout: unlimited is more than the operator allows, which is 1m0s"},
		{Limits{MilliCPUs: 2500}.Within(Limits{MilliCPUs: 1000}), "cpus: 2.5 is more than the operator allows, which is 1"},
		{Limits{PIDs: 9}.Within(Limits{PIDs: 8}), "pids: 9 is more than the operator allows, which is 8"},
		{Limits{Memory: 1000}.Check(), "memory: 1000 bytes is not between 4MiB and 1024TiB"},
		{Limits{Wall: time.Microsecond}.Check(), "timeout: 1µs is not between 1ms and 8760h0m0s"},
	} {
		var refusal *Refusal
		if !errors.As(tt.err, &refusal) || refusal.Message != tt.want {
			t.Errorf("%v, want %s", tt.err, tt.want)
		}
	}
}
