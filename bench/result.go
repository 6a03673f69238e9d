package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// A Result is the table that a mode has measured, with its drawings. It is stored as JSON.
type Result struct {
	Key     string // name of its file, and of its drawings
	Title   string
	Notes   []string // sentences below the table
	Date    string   // of its beginning, UTC
	Machine string
	Busy    string // the load of the machine before the run
	Rounds  int
	Columns []string
	Rows    [][]string
	Plots   []*Plot
}

// newResult returns an empty result of this machine.
func newResult(key, title string, columns ...string) *Result {
	return &Result{Key: key, Title: title, Columns: columns, Machine: machine()}
}

func (r *Result) add(cells ...string) { r.Rows = append(r.Rows, cells) }

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// print writes the table as text.
func (r *Result) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(r.Columns, "\t")))
	for _, row := range r.Rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		if _, err := fmt.Fprintln(to, n); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(to)
	return err
}

// publish prints a result and stores it.
func (o *options) publish(r *Result) error {
	r.Date, r.Busy = o.begun.UTC().Format("2006-01-02 15:04 MST"), o.busy
	return errors.Join(r.print(os.Stdout), o.keep(r))
}

// keep stores a result for -write.
func (o *options) keep(r *Result) error {
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return replace(filepath.Join(o.results, r.Key+".json"), append(text, '\n'))
}

// kept reads a stored result; it returns nil if there is none.
func (o *options) kept(key string) (*Result, error) {
	text, err := os.ReadFile(filepath.Join(o.results, key+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return r, nil
}

// replace writes a file atomically.
func replace(name string, text []byte) error {
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// machine describes this machine: processors, memory, kernel, cgroups.
func machine() string {
	var u unix.Utsname
	var s unix.Sysinfo_t
	_, _ = unix.Uname(&u), unix.Sysinfo(&s) // neither can fail with these arguments
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	model, n := "processor", 0
	for l := range strings.Lines(string(cpus)) {
		name, value, _ := strings.Cut(l, ":")
		switch strings.TrimSpace(name) {
		case "processor":
			n++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	groups := "cgroup v1"
	var fs unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		groups = "cgroup v2"
	} else if unix.Statfs("/sys/fs/cgroup/unified", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		groups = "cgroup v1 with an empty v2 beside it"
	}
	return fmt.Sprintf("%d × %s, %.1f GiB, Linux %s, %s", n, model, float64(s.Totalram)*float64(s.Unit)/(1<<30),
		string(bytes.TrimRight(u.Release[:], "\x00")), groups)
}

// load describes the load of the machine while this program is idle.
func load() string {
	busy, err := busyTime()
	start := time.Now()
	time.Sleep(500 * time.Millisecond)
	after, err2 := busyTime()
	if errors.Join(err, err2) != nil {
		return ""
	}
	return fmt.Sprintf("others took %.2f processors before the first round", (after-busy).Seconds()/time.Since(start).Seconds())
}

// busyTime returns the processor time that the machine has spent on all processes, in ticks of 10 ms (proc_stat(5)).
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, wait, hard, soft int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &hard, &soft); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+hard+soft) * 10 * time.Millisecond, nil
}
