//go:build race

package index

// RaceScale divides sizes of tests: SQLite, which is Go here, is some ten times slower with the race detector.
const RaceScale = 8
