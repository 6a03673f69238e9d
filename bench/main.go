// Bench compares corral with a bare spawn and with other programs that isolate a process.
//
// All rows of a table run in turn, round by round, in one process, so that drift of the machine affects all alike. A table
// has the median of each row, and the median of its ratios to bare in the same round. A row that cannot be measured says
// why, and the others continue. Each mode prints a table and stores it in -results; -write renders the stored results into
// docs/explanation/performance.md. bench/all runs all modes of the page.
//
// Modes; if several are given, the first one runs:
//
//	(none)       /bin/true: bare, in bubblewrap, and in corral by its API and its command; with -base, also by those of another build
//	-peers       /bin/true in every peer of bench/setup-peers, and in corral at each of its levels
//	-levels      how a job starts, by corral's API: back to back, after idle times, in bursts, and first jobs of repositories
//	-parallel    jobs per second, 1, 2, 8 and 64 at once, and the CPU time of a job
//	-session     a call in an open session: sandbox_exec and command/exec, next to podman exec and Codex's command/exec
//	-network     network access by rules: a slot with a door, the first byte, throughput and idle connections, next to none
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
		{
			flag: "session", usage: "a call in a standing session beside podman exec and Codex",
			run: tableMode("session", "A call in what stands already", sessionRows),
		},
		{flag: "network", usage: "jobs with doors beside jobs without, and connections beside direct ones", bare: true, run: networkMode},
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
