// Package operate has what an operator does to a supervisor that runs: read its configuration again, and drain it.
//
// The package decides when; what is read or refused is the supervisor's. It runs as root, on behalf of root alone.
package operate
