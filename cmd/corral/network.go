package main

import (
	"corral/internal/text"
	"corral/job"
)

// deniedLines returns what a job could not reach, a line per host, and who can allow it; nil if nothing was denied.
func deniedLines(use *job.NetworkUse) []string {
	if use == nil {
		return nil
	}
	lines, hint := use.Report(len(use.Denials))
	for n, line := range lines {
		lines[n] = "corral: " + text.Escape(line)
	}
	if hint != "" {
		lines = append(lines, "hint: "+hint)
	}
	return lines
}
