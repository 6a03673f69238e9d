package commands

import (
	"flag"
	"fmt"
	"time"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/store/audit"
)

// networkLog is corral network log.
func networkLog(args []string) error {
	o := networkPrinterOptions{State: supervisor.StateDir}
	f := flag.NewFlagSet("network log", flag.ContinueOnError)
	follow := &o.Follow
	f.BoolVar(follow, "follow", false, "")
	f.BoolVar(follow, "f", false, "")
	f.BoolVar(&o.Denied, "denied", false, "")
	f.BoolVar(&o.JSON, "json", false, "")
	f.StringVar(&o.Repo, "repo", "", "")
	f.StringVar(&o.User, "user", "", "")
	f.StringVar(&o.State, "state", o.State, "")
	f.Func("since", "", func(s string) (err error) {
		o.Since, err = audit.ParseTime(s, time.Now())
		return err
	})
	rest, err := cli.ParseMixed(f, args, networkHelp)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %s\nhint: corral network --help", text.Quote(rest[0]))
	}
	return o.Run()
}
