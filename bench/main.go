// Bench compares corral with a bare spawn and with other programs that isolate a process.
//
// All rows of a table run in turn, round by round, in one process, so that drift of the machine affects all alike. A table
// has the median of each row, and the median of its ratios to bare in the same round. A row that cannot be measured says
// why, and the others continue. Each mode prints a table and stores it in -results; -write renders the stored results into
// docs/explanation/performance.md. bench/all runs all modes of the page.
//
// Modes; if several are given, the first one runs:
//
//	(none)       /bin/true: bare, in bubblewrap, and in corral by its API and its command
//	-peers       /bin/true in every peer of bench/setup-peers, and in corral at each of its levels
//	-levels      corral's API: back to back, after idle times, in bursts, and first jobs of repositories
//	-parallel    jobs per second, 1, 2, 8 and 64 at once, and the CPU time of a job
//	-memory      memory of an idle slot and of a running job
//	-output      throughput of output into an artifact, next to gzip
//	-deadline    delay of the answer after a deadline, and how long killing 1,000 processes takes
//	-scale       many jobs in a row, many at once, many repositories
//	-mcp         a script: bash alone, and an agent that calls runtime_execute
//	-session     a call in an open session: sandbox_exec and command/exec, next to podman exec and Codex's command/exec
//	-network     network access by rules: a slot with a door, the first byte, throughput and idle connections, next to none
//	-versions    jobs of these programs next to those of -base: time and CPU time
//	-starlark    a program in Starlark: its interpreter alone, and an agent that calls starlark_run
//	-stream      throughput of output through command/exec, next to a pipe
//	-index       how many planted lines the index finds, and what adding large texts costs; needs no root
//	-index-large the same, and searches in ten million lines, which takes minutes
//	-write       renders the page from the stored results, and measures nothing
//
// Run it as root, by `make bench`; -n sets the rounds, -idle waits before each run, -limit ends a mode early.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == clientWord {
		if err := runClient(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: client:", err)
			os.Exit(1)
		}
		return
	}
	if err := bench(ctx, os.Args[1:]); err != nil {
		stop()
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

// A mode is one measurement, or the rendering of the page.
type mode struct {
	flag, usage string
	bare        bool // it needs no supervisor
	run         func(context.Context, *options) error
}

func modes() []mode {
	return []mode{
		{flag: "peers", usage: "every peer, and corral at each level", run: peersMode},
		{flag: "levels", usage: "corral's API at several paces, and without slots", bare: true, run: levelsMode},
		{flag: "parallel", usage: "jobs a second", run: parallelMode},
		{flag: "memory", usage: "memory of slots and jobs", run: memoryMode},
		{flag: "output", usage: "output to an artifact beside gzip", run: outputMode},
		{flag: "deadline", usage: "timeouts, and the kill of many processes", run: deadlineMode},
		{flag: "scale", usage: "many jobs, many at once, many repositories", bare: true, run: scaleMode},
		{flag: "mcp", usage: "an agent's call beside the bare script", run: tableMode("mcp", "A script through runtime_execute", mcpRows)},
		{
			flag: "session", usage: "a call in a standing session beside podman exec and Codex",
			run: tableMode("session", "A call in what stands already", sessionRows),
		},
		{flag: "network", usage: "jobs with doors beside jobs without, and connections beside direct ones", bare: true, run: networkMode},
		{flag: "versions", usage: "jobs of these programs beside those of -base", bare: true, run: versionsMode},
		{
			flag: "starlark", usage: "a program in Starlark beside its bare interpreter",
			run: tableMode("starlark", "A program in Starlark", starlarkRows),
		},
		{flag: "stream", usage: "a stream of output beside a pipe", run: stream},
		{flag: "index", usage: "what the index finds, and what that takes", bare: true, run: indexRows(false)},
		{flag: "index-large", usage: "the same, and searches in ten million lines", bare: true, run: indexRows(true)},
		{flag: "write", usage: "render the page from the results that are kept", bare: true, run: writePage},
	}
}

func bench(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.flags(f)
	all := modes()
	asked := make([]*bool, len(all))
	for i, m := range all {
		asked[i] = f.Bool(m.flag, false, m.usage)
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := o.complete(); err != nil {
		return err
	}
	chosen := mode{run: tableMode("run", "One /bin/true", runRows)}
	for i, m := range all {
		if *asked[i] {
			chosen = m
			break
		}
	}
	if o.begun = time.Now(); o.limit > 0 {
		o.until = o.begun.Add(o.limit)
	}
	if chosen.flag != "write" {
		o.busy = load()
	}
	if chosen.bare {
		return chosen.run(ctx, &o)
	}
	finish, err := o.prepare()
	defer finish()
	if err != nil {
		return err
	}
	return chosen.run(ctx, &o)
}
