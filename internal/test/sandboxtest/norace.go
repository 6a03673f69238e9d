//go:build !race

package sandboxtest

// raced says that the test was built with the race detector.
const raced = false
