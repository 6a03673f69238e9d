//go:build race

package index

// RaceScale divides the sizes of tests: SQLite, which is Go code here, is about three times slower with the race detector.
const RaceScale = 8
