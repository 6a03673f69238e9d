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

// Arguments are what the program is started with, its own name first, to run the script at path.
func Arguments(b Bounds, path string) []string {
	return []string{
		"starlark",
		"--output=" + strconv.Itoa(b.Output),
		"--wall=" + strconv.FormatInt(b.Wall.Milliseconds(), 10),
		"--memory=" + strconv.FormatInt(max(b.Memory, 0), 10),
		path,
	}
}

// parseArguments is the reverse of Arguments.
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
			return Bounds{}, "", fmt.Errorf("%sN is a whole number from %d to %d, not %q", f.name, f.min, f.max, args[i+1])
		}
		*f.value = n
	}
	b.Output, b.Wall = int(output), time.Duration(wall)*time.Millisecond
	return b, args[len(args)-1], nil
}

// Run is the program: it runs the script that args (see Arguments) name, with this input, and calls exit once, as the
// last of it all, whatever the script does. It never returns.
//
// The exit code is 0 if the script has ended well. It is 1 if not: the last line of stderr is then the failure, for
// Ended to read. It is 2 for other arguments or a file that cannot be read. The process belongs to the script: how it
// collects garbage, and how deep its stacks grow, is set for that.
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
	// Before end, so that a reader who does not read is what the clock ends, too.
	if err := r.out.Flush(); err != nil && f == nil {
		f = &Failure{Code: CodeEval, Message: "emit: nobody takes what is emitted"}
	}
	r.end(f)
}

// readSource reads as much of a file as shows whether it is too long.
func readSource(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxScript+1))
}

// A run is a script that runs in this process.
type run struct {
	bounds Bounds
	out    *outlet
	stderr io.Writer
	exit   func(int)
	ended  atomic.Bool
}

const (
	patience = 50 * time.Millisecond // with who reads the output of a script that is at its end
	tick     = 2 * time.Millisecond  // between two looks at the memory
	maxStack = 64 << 20              // bytes: about 100,000 calls of the library to itself
)

// confine has the Go runtime do with what the script may have.
func (r *run) confine() {
	runtime.GOMAXPROCS(2) // one for the script, and one that notices
	debug.SetMaxStack(maxStack)
	debug.SetGCPercent(400) // most scripts end before there is any garbage to speak of
	if r.bounds.Memory == 0 {
		return
	}
	debug.SetMemoryLimit(r.most() / 4 * 3)
	// What is too large by far is refused before it is written to: that takes seconds in which nothing else may run, since
	// the collector stops the world and waits for a copy of a thousand million bytes to end. The runtime reserves about 80
	// MiB itself. Near this limit it is none to rely on, hence the distance. Without it, the kernel's end comes later.
	limit := uint64(r.bounds.Memory)/2*3 + 128<<20
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit})
}

// most is how much memory the runtime may have. The rest is the program's text, and for the kernel, which would end the
// process without a word.
func (r *run) most() int64 {
	return max(r.bounds.Memory-max(r.bounds.Memory/8, 16<<20), r.bounds.Memory/2)
}

// watch ends the process in time, and before there is no memory left. What the interpreter is doing does not matter:
// much of it does not notice a thread.Cancel (all(range(1<<60)), int("9" * 30000000)).
//
// The timers cost a script that ends soon nothing: a thread is started for them when one goes off.
func (r *run) watch() {
	time.AfterFunc(r.bounds.Wall, func() { r.end(TimedOut(r.bounds.Wall)) })
	if r.bounds.Memory == 0 {
		return
	}
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(tick, func() {
		<-set
		if resident() > r.most() {
			r.end(OutOfMemory())
		}
		timer.Reset(tick)
	})
	close(set)
}

// resident is how many bytes of memory the process has, 0 if that is not known. It is asked of the kernel, which knows of
// what was reserved and not yet used, and not of package runtime/metrics, whose start is a fifth of a small script's time.
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

// end ends the process, and does not return. Of several goroutines that want to, the first one's word counts.
func (r *run) end(f *Failure) {
	if r.ended.Swap(true) {
		select {}
	}
	code := 0
	if f != nil {
		r.out.Close(patience)
		_ = f.write(r.stderr) // who does not read it learns from the exit code
		code = exitFailed
	}
	r.exit(code)
	select {}
}
