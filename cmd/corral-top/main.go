// Corral-top is `corral top`: it shows running jobs on a terminal. It is a program of its own, because its library for terminals
// would be a tenth of corral-front, which starts for every other command.
package main

import (
	"fmt"
	"os"

	"corral/front/cli"
	"corral/front/top"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

func main() {
	code, err := cli.Failure, embed.Lower()
	if err == nil {
		code, err = top.Command(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, text.Lines("corral: "+err.Error()))
	}
	os.Exit(code)
}
