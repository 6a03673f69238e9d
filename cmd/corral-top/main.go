// Corral-top is `corral top`: it shows running jobs on a terminal. It is a program of its own, because its library for terminals
// would be a tenth of corral-front, which starts for every other command.
//
// That is charm's bubbletea in version 2: version 1 asks the terminal for its colors whenever a program that is linked with it
// starts, before root is dropped.
package main

import (
	"os"

	"corral/front/cli"
	"corral/isolate/client/embed"
)

func main() {
	err := embed.Lower()
	if err == nil {
		err = topCommand(os.Args[1:])
	}
	os.Exit(cli.End(err))
}
