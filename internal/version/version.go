// Package version holds the version of all programs of one build.
package version

// Version is the output of git describe for the built tree, set by the linker; "dev" if it is not set.
var Version = "dev"
