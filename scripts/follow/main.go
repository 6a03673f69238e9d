// Follow does what a page of the documentation says: it runs the commands of the page in order, as the accounts that its
// comments name, and compares what they print with what the page shows.
//
//	follow [-slow FACTOR] PAGE...
//
// It stops at the first command that fails, and exits with 1. A command without an output on the page must exit with 0; of one
// with an output, what it prints must fit. An account keeps one shell for a page, so that a directory and variables last; the
// shell begins with the account's first command, which is a login of its own. Pages are followed where they can do no harm:
// scripts/package/test-guest runs this as root in a virtual machine. With -slow, it also prints the time divided by how much
// slower that machine is than a real one.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"corral/internal/test/example"
)

func main() {
	slow := flag.Float64("slow", 1, "how much slower this machine is than a real one")
	flag.Parse()
	if flag.NArg() == 0 || *slow <= 0 {
		fmt.Fprintln(os.Stderr, "usage: follow [-slow FACTOR] PAGE...")
		os.Exit(2)
	}
	for _, page := range flag.Args() {
		start := time.Now()
		n, err := follow(os.Stdout, page)
		if err != nil {
			_, _ = fmt.Fprintln(os.Stdout, "FAIL ", err)
			os.Exit(1)
		}
		took := time.Since(start).Seconds()
		_, _ = fmt.Fprintf(os.Stdout, "ok    %s: %d steps in %.0f s; on a machine that is not emulated, %.0f s\n", page, n, took, took/(*slow))
	}
}

// follow runs the steps of a page, and returns how many there were. A page without any is an error.
func follow(log *os.File, page string) (int, error) {
	listings, err := example.Listings(page)
	if err != nil {
		return 0, err
	}
	shells := map[string]*shell{}
	defer func() {
		for _, s := range shells {
			s.close()
		}
	}()
	match, n := example.NewMatcher(), 0
	for _, l := range listings {
		steps, err := l.Steps()
		if err != nil {
			return n, fmt.Errorf("%s: %w", page, err)
		}
		for _, step := range steps {
			n++
			start := time.Now()
			output, err := take(shells, match, step)
			if err != nil {
				return n, fmt.Errorf("%s:%d: %s: %w", page, step.Line, step.Command+step.File, err)
			}
			_, _ = fmt.Fprintf(log, "  %5.1f s  %s:%d  %s\n", time.Since(start).Seconds(), page, step.Line, step.Command+step.File)
			for line := range strings.Lines(output) {
				_, _ = fmt.Fprintf(log, "          | %s\n", strings.TrimSuffix(line, "\n"))
			}
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("%s: it has no block to follow (<!-- run: as USER -->)", page)
	}
	return n, nil
}

// take runs one step, and returns what it wrote.
func take(shells map[string]*shell, match *example.Matcher, step example.Step) (string, error) {
	if step.File != "" {
		return "", os.WriteFile(step.File, []byte(step.Text), 0o644) //nolint:gosec // as an editor would write it
	}
	s := shells[step.User]
	if s == nil {
		var err error
		if s, err = login(step.User); err != nil {
			return "", err
		}
		shells[step.User] = s
	}
	fits := func(output string) error {
		if step.Output == "" {
			return nil
		}
		learn(match, step.Output, output)
		return match.Text(varying.ReplaceAllString(step.Output, "VARIES"), varying.ReplaceAllString(output, "VARIES"))
	}
	command := match.Actual(step.Command)
	if step.Background {
		return s.serve(command, fits)
	}
	output, code, err := s.run(command)
	if err != nil {
		return "", err
	}
	if step.Output == "" && code != 0 {
		return "", fmt.Errorf("exit status %d: %s", code, output)
	}
	return output, fits(output)
}

var (
	// varying matches what pages show as it once was: dates as ls -l writes them, and ids of a job's user, which depend on the
	// slot that the job gets.
	varying = regexp.MustCompile(`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d|\b1\d{3}\(job\)`)
	// ids matches ids of sessions and changes, and digests.
	ids = regexp.MustCompile(`\b(?:[0-9a-f]{32}|[0-9a-f]{64})\b`)
)

// learn has ids of the page stand for those of this output, in the order in which they are written.
func learn(match *example.Matcher, page, output string) {
	shown, real := ids.FindAllString(page, -1), ids.FindAllString(output, -1)
	for i := range min(len(shown), len(real)) {
		match.Learn(shown[i], real[i])
	}
}
