package main

import (
	"os"
	"regexp"
)

// A quarantined test is known to fail without a mistake in what it tests. It runs, and its failure is in the summary, but does not fail
// the run. quarantineList has a row for each, with what is known about it.
const quarantineList = "CONTRIBUTING.md"

// quarantineRow matches a row of the list: | `isolate/cell.TestX` | what is known |
var quarantineRow = regexp.MustCompile("(?m)^\\| `([\\w/-]+\\.Test\\w+)` \\| \\S.* \\|$")

// neverQuarantined matches failures that are mistakes whichever test finds them: a data race, a crash, leftovers on the machine.
var neverQuarantined = regexp.MustCompile(`DATA RACE|(?m:^(panic|fatal error): )|left on the machine: `)

// readQuarantine returns the tests of a list, by package and name.
func readQuarantine(list string) (map[string]bool, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	tests := map[string]bool{}
	for _, row := range quarantineRow.FindAllStringSubmatch(string(text), -1) {
		tests[row[1]] = true
	}
	return tests, nil
}
