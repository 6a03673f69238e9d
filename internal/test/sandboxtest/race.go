//go:build race

package sandboxtest

const raced = true
