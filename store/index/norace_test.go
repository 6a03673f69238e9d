//go:build !race

package index

// RaceScale divides the sizes of tests that would be too slow with the race detector.
const RaceScale = 1
