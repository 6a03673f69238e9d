package main

import (
	"fmt"

	"corral/internal/text"
	"corral/job"
)

// deniedLines returns what a job could not reach, a line per host, and who can allow it; nil if nothing was denied.
func deniedLines(use *job.NetworkUse) (lines []string) {
	if use == nil {
		return nil
	}
	allowable := false
	for _, d := range use.Denials {
		lines = append(lines, fmt.Sprintf("corral: network: %s denied%s: %s", text.Escape(d.Host()), times(d.Count), text.Escape(d.Reason())))
		allowable = allowable || d.Allow != ""
	}
	switch n := use.Unlisted(); {
	case n > 0 && len(lines) > 0:
		lines = append(lines, fmt.Sprintf("corral: network: and %d more denied", n))
	case n > 0:
		lines = append(lines, fmt.Sprintf("corral: network: %d connections or names denied", n))
	}
	if allowable {
		lines = append(lines, "hint: "+job.NetworkHint)
	}
	return lines
}

// times returns how often something happened, "" for once.
func times(n int64) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" %d times", n)
}
