// Mutants shows that each check on the way from a job to a host is needed and tested: it leaves out one check at a time, and runs
// the tests of the package, which must fail. It changes no file: the compiler gets the changed source as an overlay.
//
//	go run ./scripts/mutants [PACKAGE...]    all checks, or those of packages such as egress/relay
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A mutant is a change of the source that leaves out a check.
type mutant struct {
	prevents string // what the check prevents
	file     string
	from, to string // from is in the file exactly once
}

//go:embed table.txt
var table string

// read returns the mutants of table.txt: blocks of four lines, after a comment.
func read() (list []mutant, err error) {
	for _, block := range strings.Split(strings.TrimSpace(table), "\n\n")[1:] {
		lines := strings.Split(block, "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[2], "- ") || !strings.HasPrefix(lines[3], "+ ") {
			return nil, fmt.Errorf("table.txt: %q must be what it prevents, the file, - and the text, + and what takes its place", block)
		}
		list = append(list, mutant{lines[0], lines[1], lines[2][2:], lines[3][2:]})
	}
	return list, nil
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, packages []string) error {
	mutants, err := read()
	if err != nil {
		return err
	}
	failed := 0
	for _, m := range mutants {
		dir := filepath.Dir(m.file)
		if len(packages) > 0 && !slices.Contains(packages, dir) {
			continue
		}
		began := time.Now()
		red, err := m.run()
		if err != nil {
			failed++
			_, _ = fmt.Fprintf(out, "FAIL  %-22s %s: %v\n", dir, m.prevents, err)
			continue
		}
		_, _ = fmt.Fprintf(out, "red   %-22s %s: %s (%.1f s)\n", dir, m.prevents, strings.Join(red, ", "), time.Since(began).Seconds())
	}
	if failed > 0 {
		return fmt.Errorf("%d checks are missing, or nothing fails without them", failed)
	}
	return nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// run returns the tests that fail without the check.
func (m *mutant) run() (red []string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(source, []byte(m.from)); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times, want once: adapt scripts/mutants", m.file, m.from, n)
	}
	dir, err := os.MkdirTemp("", "corral-mutant-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	file, err := filepath.Abs(m.file)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return nil, err
	}
	source = bytes.Replace(source, []byte(m.from), []byte(m.to), 1)
	if err := errors.Join(os.WriteFile(changed, source, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return nil, err
	}
	args := []string{"test", "-tags", "seccomp", "-vet=off", "-timeout", "60s", "-overlay", overlay, "./" + filepath.Dir(m.file)}
	cmd := exec.Command("go", args...) //nolint:gosec // the names of our packages
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, errors.New("no test fails without it")
	}
	for _, match := range failedTest.FindAllStringSubmatch(string(out), -1) {
		red = append(red, match[1])
	}
	if red == nil && strings.Contains(string(out), "panic: test timed out") {
		red = []string{"the tests do not end"}
	}
	if red == nil {
		return nil, fmt.Errorf("the tests did not run: %.2000s", out)
	}
	return red, nil
}
