package starlark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Arguments returns the program's arguments, including its name, to run the script at path.
func Arguments(b Bounds, path string) []string {
	return []string{
		"starlark",
		"--output=" + strconv.Itoa(b.Output),
		"--wall=" + strconv.FormatInt(b.Wall.Milliseconds(), 10),
		"--memory=" + strconv.FormatInt(max(b.Memory, 0), 10),
		path,
	}
}

// parseArguments is the inverse of Arguments.
func parseArguments(args []string) (b Bounds, path string, err error) {
	var output, wall int64
	flags := []struct {
		name     string
		value    *int64
		min, max int64
	}{
		{"--output=", &output, 1, MaxOutput},
		{"--wall=", &wall, 1, MaxWall.Milliseconds()},
		{"--memory=", &b.Memory, 0, 1 << 50},
	}
	if len(args) != len(flags)+2 || args[0] != "starlark" {
		return Bounds{}, "", errors.New("usage: starlark --output=BYTES --wall=MILLISECONDS --memory=BYTES FILE")
	}
	for i, f := range flags {
		text, ok := strings.CutPrefix(args[i+1], f.name)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < f.min || n > f.max {
			return Bounds{}, "", fmt.Errorf("%sN must be an integer from %d to %d, got %q", f.name, f.min, f.max, args[i+1])
		}
		*f.value = n
	}
	b.Output, b.Wall = int(output), time.Duration(wall)*time.Millisecond
	return b, args[len(args)-1], nil
}

// Run is the main function of the program. It runs the script that args name (see Arguments) and calls exit exactly once,
// at the end, whatever the script does. It never returns.
//
// The exit code is 0 if the script succeeded, 1 if it failed, and 2 for invalid arguments or an unreadable file. After
// code 1 the last line of stderr is the failure, which Ended reads. Run expects a process of its own: it changes the
// garbage collector and the maximum size of stacks.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer, exit func(int)) {
	b, path, err := parseArguments(args)
	var source []byte
	if err == nil {
		source, err = readSource(path)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "corral-starlark:", err)
		exit(2)
		select {}
	}
	r := &run{bounds: b, out: newOutlet(stdout), stderr: stderr, exit: exit}
	r.confine()
	r.watch()
	f := Exec(context.Background(), source, stdin, r.out, b)
	// Before end, so that the timeout also covers a reader that does not read.
	if err := r.out.Failed(); err != nil && f == nil {
		f = &Failure{Code: CodeEval, Message: "emit: the output cannot be written"}
	}
	r.end(f)
}

// readSource reads at most one byte more than MaxScript.
func readSource(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxScript+1))
}

// A run is the execution of a script in this process.
type run struct {
	bounds Bounds
	out    *outlet
	stderr io.Writer
	exit   func(int)
	ended  atomic.Bool
}

const (
	closeTimeout = 50 * time.Millisecond // for the reader of the output after the script has failed
	tick         = 2 * time.Millisecond  // interval of checks of the memory
	maxStack     = 64 << 20              // bytes: about 100,000 nested calls in the library
)

// confine adjusts the Go runtime to the bounds of the script.
func (r *run) confine() {
	runtime.GOMAXPROCS(2) // one for the script, one for the timers
	debug.SetMaxStack(maxStack)
	debug.SetGCPercent(400) // most scripts end before there is much garbage
	if r.bounds.Memory == 0 {
		return
	}
	debug.SetMemoryLimit(r.maxRuntime() / 4 * 3)
	// An allocation that is far too large must fail before it is written to. Otherwise, writing takes seconds in which
	// nothing else runs: the collector stops the world and waits until a copy of 10^9 bytes is done. The runtime itself
	// reserves about 80 MiB, and near the limit its behavior is unreliable, hence the distance. Without this limit, only
	// the kernel's limit would end the process, later.
	limit := uint64(r.bounds.Memory)/2*3 + 128<<20
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit})
}

// maxRuntime returns how much memory the runtime may use. The rest is for the program's text and the kernel, which would
// kill the process without a message.
func (r *run) maxRuntime() int64 {
	return max(r.bounds.Memory-max(r.bounds.Memory/8, 16<<20), r.bounds.Memory/2)
}

// watch ends the process when its time is up or its memory is nearly used up, whatever the interpreter is doing: many
// operations do not react to thread.Cancel (all(range(1<<60)), int("9" * 30000000)).
//
// A script that ends soon pays nothing for the timers: their thread is started only when one fires.
func (r *run) watch() {
	time.AfterFunc(r.bounds.Wall, func() { r.end(TimedOut(r.bounds.Wall)) })
	if r.bounds.Memory == 0 {
		return
	}
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(tick, func() {
		<-set
		if resident() > r.maxRuntime() {
			r.end(OutOfMemory())
		}
		timer.Reset(tick)
	})
	close(set)
}

// resident returns the resident memory of the process in bytes, or 0 if unknown. The kernel's figure excludes memory that
// is reserved but unused, and package runtime/metrics takes a fifth of the run time of a small script to start.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm") // proc_pid_statm(5): size and resident pages
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// end ends the process, and does not return. Of concurrent calls, the first one counts.
func (r *run) end(f *Failure) {
	if r.ended.Swap(true) {
		select {}
	}
	code := 0
	if f != nil {
		r.out.Close(closeTimeout)
		_ = f.write(r.stderr) // if it is not read, the exit code remains
		code = exitFailed
	}
	r.exit(code)
	select {}
}
