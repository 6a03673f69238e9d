// Corral-init is the program that runs inside a jail: as process 1 of the jail and, under the name scan, as the jail's
// scanner, which finds changed sensitive paths in the repository. The supervisor starts both; it is not meant to be run
// by hand.
package main

import (
	"fmt"
	"os"
	"strings"

	"corral/isolate/inside"
	"corral/isolate/scan"
)

func main() {
	run := func() error { return inside.Run(os.Args[1:]) }
	if len(os.Args) > 0 && os.Args[0] == "scan" {
		run = func() error { return scan.Serve(0, strings.Join(os.Args[1:], "")) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "corral-init:", err)
		os.Exit(1)
	}
}
