package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"corral/internal/usage"
)

// drainCommand returns exit code 1 if jobs still run after the timeout.
func drainCommand(args []string) (int, error) {
	f := flag.NewFlagSet("drain", flag.ContinueOnError)
	undo, timeout := f.Bool("undo", false, ""), f.Duration("timeout", 0, "")
	_, c, err := operate(f, usage.Drain, "", args)
	if c == nil {
		return 0, err
	}
	defer c.Close()
	if *timeout < 0 {
		return 0, errors.New("--timeout must not be negative: 0 waits as long as jobs run")
	}
	if err := c.Drain(*undo); err != nil || *undo {
		return 0, err
	}
	for began := time.Now(); ; time.Sleep(pollInterval) {
		list, err := c.List()
		if err != nil {
			return 0, err
		}
		if len(list) == 0 {
			return 0, printText("drained: no job runs, and none is taken\n")
		}
		if *timeout > 0 && time.Since(began) >= *timeout {
			return 1, fmt.Errorf("%d jobs still run after %v, and no new ones are taken\nhint: corral ps lists them; corral drain --undo takes new jobs again", len(list), *timeout)
		}
	}
}
