package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits bound the resources of a job. A zero field means the supervisor's default, see Defaults; Unlimited lifts a
// limit that can be lifted.
type Limits struct {
	Memory    int64         // bytes, of all processes together; swap is never used
	MilliCPUs int64         // thousandths of a CPU; default Unlimited, all of the host's
	PIDs      int64         // processes and threads
	Wall      time.Duration // from start to end; default Unlimited
	KillAfter time.Duration // from SIGTERM to SIGKILL when the job is ended: at its deadline, or on request
	Tmp       int64         // bytes in each of PrivateDirs; default Unlimited: Memory bounds them
	TmpInodes int64         // files in each of them; default Unlimited: Memory bounds them
	Disk      int64         // bytes the job may add to the repository; default Unlimited
	Inodes    int64         // files the job may add to the repository; default Unlimited
	FileSize  int64         // bytes of one file; default Unlimited
	OpenFiles int64         // descriptors of one process
}

// Unlimited lifts a limit. CPU, wall time, tmp, its inodes, disk, inodes and file size can be lifted.
const Unlimited = -1

// PrivateDirs returns the directories that each job has for itself. Files in them are in memory, unless a session has them on disk.
func PrivateDirs() []string { return []string{"/tmp", "/var/tmp", "/home", "/dev/shm"} }

// bytesPerFile is the memory for which a private directory without a limit of its own may have a file. The kernel charges a job some
// 1.2 KiB for an empty one.
const (
	bytesPerFile    = 16 << 10
	minPrivateFiles = 65536
)

// Private returns how many bytes and files each private directory may have. Both are memory, so where they have no limit, that of memory
// bounds them.
func (l *Limits) Private() (bytes, files int64) {
	bytes, files = l.Tmp, l.TmpInodes
	if bytes == Unlimited {
		bytes = l.Memory
	}
	if files == Unlimited {
		files = max(minPrivateFiles, l.Memory/bytesPerFile)
	}
	return bytes, files
}

// Defaults returns the limits of a job that sets none.
func Defaults() Limits {
	return Limits{
		Memory: 2 << 30, MilliCPUs: Unlimited, PIDs: 512, Wall: Unlimited, KillAfter: 2 * time.Second,
		Tmp: Unlimited, TmpInodes: Unlimited, Disk: Unlimited, Inodes: Unlimited, FileSize: Unlimited, OpenFiles: 4096,
	}
}

// A Unit is what a limit is measured in.
type Unit int

// The units.
const (
	Count Unit = iota
	Bytes
	CPUs // thousandths of a CPU
	Time // nanoseconds
)

// Parse reads a value as people write it.
func (u Unit) Parse(s string) (int64, error) {
	switch u {
	case Bytes:
		return ParseSize(s)
	case CPUs:
		return ParseCPUs(s)
	case Time:
		d, err := ParseDuration(s)
		return int64(d), err
	}
	return ParseCount(s)
}

func (u Unit) format(n int64) string {
	switch u {
	case Bytes:
		return formatBytes(n)
	case CPUs:
		return FormatCPUs(n)
	case Time:
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// A Field is one limit of a Limits, for code that treats all of them alike.
type Field struct {
	Name     string
	Option   string // of corral run, without dashes; "" is none
	Doc      string // what it bounds: a sentence for help texts and pages
	Unit     Unit
	Value    *int64
	Min, Max int64 // accepted range of a request, inclusive
	Liftable bool  // whether Unlimited is accepted
}

// Key returns the name as one word, as in the configuration.
func (f *Field) Key() string { return strings.ReplaceAll(f.Name, " ", "_") }

// Phrase returns Doc for use after other words: in lower case, unless it begins with an abbreviation, and without the full stop.
func (f *Field) Phrase() string {
	s := strings.TrimSuffix(f.Doc, ".")
	if strings.ToLower(s[1:2]) != s[1:2] {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// Format formats a value of this limit with its unit, for people.
func (f *Field) Format(v int64) string {
	if v == Unlimited {
		return "unlimited"
	}
	return f.Unit.format(v)
}

// formatBytes is FormatSize, but always with a unit, and as the nearest value below with one decimal if that is shorter: nobody reads
// 24684092KiB.
func formatBytes(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}} {
		if n >= u.unit && n%(u.unit>>10) != 0 {
			return strconv.FormatFloat(math.Floor(float64(n)/float64(u.unit)*10)/10, 'f', 1, 64) + u.name
		}
	}
	if text := FormatSize(n); text[len(text)-1] == 'B' {
		return text
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// Bounds of a request's limits on any machine: with less, no program starts; more is a mistake of units.
const (
	minMemory = 4 << 20
	maxBytes  = 1 << 50
	maxCount  = 1 << 22
)

// NumLimits is the number of limits.
const NumLimits = 11

// Fields returns every limit of l in a fixed order.
func (l *Limits) Fields() [NumLimits]Field {
	return [...]Field{
		{"memory", "memory", "Memory of all processes, with page cache; there is no swap.", Bytes, &l.Memory, minMemory, maxBytes, false},
		{"cpus", "cpus", "CPUs of the host.", CPUs, &l.MilliCPUs, 10, 1_000_000, true},
		{"pids", "pids", "Processes and threads.", Count, &l.PIDs, 2, maxCount, false},
		{"timeout", "timeout", "Time from start to end.", Time, (*int64)(&l.Wall), int64(time.Millisecond), int64(365 * 24 * time.Hour), true},
		{
			"kill after", "kill-after", "Time from SIGTERM to SIGKILL when a job is ended, at its timeout or on request.", Time,
			(*int64)(&l.KillAfter), int64(time.Millisecond), int64(10 * time.Minute), false,
		},
		{"tmp", "tmp", "Size of each private directory: /tmp, /var/tmp, /home, /dev/shm. It is memory.", Bytes, &l.Tmp, 1 << 16, maxBytes, true},
		{"tmp inodes", "", "Files in each private directory.", Count, &l.TmpInodes, 16, 1 << 31, true},
		{"disk", "disk", "Space that a job may add to the repository.", Bytes, &l.Disk, 1, maxBytes, true},
		{"inodes", "inodes", "Files that a job may add to the repository.", Count, &l.Inodes, 1, 1 << 40, true},
		{"file size", "file-size", "Size of one file.", Bytes, &l.FileSize, 1, maxBytes, true},
		// The last steps of the confinement need a dozen.
		{"open files", "nofile", "Open files of one process.", Count, &l.OpenFiles, 32, 1 << 20, false},
	}
}

// Check returns a *Refusal if a value is out of its range. Zero is always valid: it stands for a default.
func (l Limits) Check() error {
	for _, f := range l.Fields() {
		switch v := *f.Value; {
		case v == 0, v == Unlimited && f.Liftable:
		case v < f.Min || v > f.Max:
			return &Refusal{
				Step:    "limits",
				Message: fmt.Sprintf("%s: %s is not between %s and %s", f.Name, f.Format(v), f.Format(f.Min), f.Format(f.Max)),
			}
		}
	}
	return nil
}

// Within returns a *Refusal if a value is above the ceilings. A zero field of ceilings bounds nothing; Unlimited is
// above every other ceiling.
func (l Limits) Within(ceilings Limits) error {
	top := ceilings.Fields()
	for i, f := range l.Fields() {
		ceiling := *top[i].Value
		if ceiling == 0 || ceiling == Unlimited {
			continue
		}
		if v := *f.Value; v == Unlimited || v > ceiling {
			return &Refusal{
				Step:    "limits",
				Message: fmt.Sprintf("%s: %s is more than the operator allows, which is %s", f.Name, f.Format(v), f.Format(ceiling)),
				Hint:    "ask for less, or have the ceiling raised in the supervisor's configuration",
			}
		}
	}
	return nil
}

// Or returns l with its zero fields replaced by those of under.
func (l Limits) Or(under Limits) Limits {
	from := under.Fields()
	for i, f := range l.Fields() {
		if *f.Value == 0 {
			*f.Value = *from[i].Value
		}
	}
	return l
}

// AtMost returns l with each value above ceilings lowered to the ceiling; see Within.
func (l Limits) AtMost(ceilings Limits) Limits {
	top := ceilings.Fields()
	for i, f := range l.Fields() {
		ceiling := *top[i].Value
		if ceiling != 0 && ceiling != Unlimited && (*f.Value == Unlimited || *f.Value > ceiling) {
			*f.Value = ceiling
		}
	}
	return l
}
