//go:build !race

package sandboxtest

// raced is whether the test was built with the race detector.
const raced = false
