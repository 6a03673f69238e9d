// Corral-starlark is the interpreter of the tool code.sandbox.starlark.run. It runs as a job in a jail, on an untrusted
// script; it is not meant to be run by hand. Package starlark defines its arguments and exit codes.
package main

import (
	"os"

	"corral/policy/starlark"
)

func main() { starlark.Run(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Exit) }
