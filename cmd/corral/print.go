package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"corral/internal/text"
)

// exitFailure is the exit code for errors of corral itself.
const exitFailure = 125

func printText(text string) error {
	_, err := io.WriteString(os.Stdout, text)
	return err
}

// printError writes an error to standard error on one line with the prefix "corral: ", and its hint on a second line.
func printError(err error) {
	message, hint, hinted := strings.Cut(err.Error(), "\nhint: ")
	fmt.Fprintf(os.Stderr, "corral: %s\n", text.Escape(message))
	if hinted {
		fmt.Fprintf(os.Stderr, "hint: %s\n", text.Escape(hint))
	}
}
