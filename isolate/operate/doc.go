// Package operate lets any number of requests of an operator, such as to read the configuration again, share the work of one.
//
// The package decides when; what is done is the supervisor's. It runs as root, on behalf of root alone.
package operate
