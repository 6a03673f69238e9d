//go:build !race

package index

// RaceScale divides sizes of tests that would take too long with the race detector.
const RaceScale = 1
