package main

import (
	"context"
	"flag"

	"corral/front/cli"
	"corral/front/privilege"
)

const failure = cli.Failure

var errSaid = cli.ErrHelper

func dropRoot() error { return privilege.Drop() }

func say(s string) (int, error) { return cli.Say(s) }

func parseFlags(f *flag.FlagSet, args []string, help string) (ended bool, code int, err error) {
	return cli.ParseFlags(f, args, help)
}

func beAsked(command string, args []string, most int64, to any) (ended bool, code int, err error) {
	return cli.AnswerAsHelper(command, args, most, to)
}

func askUser(ctx context.Context, command string, question []byte, most int64) ([]byte, error) {
	return cli.AskHelper(ctx, command, question, most)
}
