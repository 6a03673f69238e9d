package unpack

import (
	"errors"
	"fmt"
	"io"
)

// Run is the main function of the program: args is the directory to fill, stdin the archive. On success it writes one
// line to stdout, see Totals.
func Run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: unpack DIR <ARCHIVE: %d arguments", len(args))
	}
	totals, err := Unpack(stdin, args[0])
	if err == nil {
		err = nameUser(args[0])
	}
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("%w\nhint: --disk and --inodes set the size of the layer", err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, totals)
	return err
}
