// Corral-starlark is the interpreter of the tool code.sandbox.starlark.run. It runs as a job in a jail, on a script that
// anybody wrote; it is no command for people. How it is started and what its end means is package starlark's affair.
package main

import (
	"os"

	"corral/policy/starlark"
)

func main() { starlark.Run(os.Args, os.Stdin, os.Stdout, os.Stderr, os.Exit) }
