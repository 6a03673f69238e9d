// Corral-top is `corral top`: it shows running jobs on a terminal. It is a program of its own, because its library for terminals
// would be a tenth of corral-front, which starts for every other command.
package main

import (
	"os"

	"corral/front/cli"
	"corral/front/top"
	"corral/isolate/client/embed"
)

func main() {
	err := embed.Lower()
	if err == nil {
		err = top.Command(os.Args[1:])
	}
	os.Exit(cli.End(err))
}
