// Manual writes the manual pages and the completion scripts of corral: `go run ./scripts/manual [-date DATE] DIR`.
//
// It runs on the machine that builds, whatever architecture the programs are built for. DIR gets man1, man8, and completions.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"corral/front/commands"
	"corral/internal/commandline"
	"corral/internal/version"
)

func main() {
	date := flag.String("date", "", "date of the release, as 2026-11-23")
	flag.Parse()
	if err := write(flag.Args(), commandline.Source{Version: version.Version, Date: *date}); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// write writes all files into the directory that is the only argument.
func write(args []string, from commandline.Source) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments given, must be one: the directory", len(args))
	}
	corral, corrald := commands.Corral(), commands.Corrald()
	files := map[string]func(io.Writer) error{
		"man1/corral.1":           func(w io.Writer) error { return corral.Man(w, from) },
		"man8/corrald.8":          func(w io.Writer) error { return corrald.Man(w, "8", from, "corral(1)") },
		"completions/corral.bash": corral.Bash,
		"completions/_corral":     corral.Zsh,
		"completions/corral.fish": corral.Fish,
	}
	for n := range corral.Commands {
		if c := &corral.Commands[n]; len(c.Usage) > 0 {
			files["man1/corral-"+c.Name+".1"] = func(w io.Writer) error { return corral.ManOf(c, w, from) }
		}
	}
	for name, content := range files {
		if err := writeFile(filepath.Join(args[0], name), content); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes one file, and its directory if it does not exist.
func writeFile(path string, content func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}
