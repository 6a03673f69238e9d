// Package config reads the configuration: what corral may do.
//
// The operator's file, /etc/corral/config.yaml, belongs to root and says which directories are served, to whom and within which
// limits. The supervisor obeys this file and reads no other. Front-ends read it too, then a file of the user's, then one that the
// command line names (see FrontSources). The last file takes precedence: key by key in mappings, as a whole for every other value.
// So a user's file cannot widen what the supervisor allows; it must not have keys for the supervisor.
//
// Beside a file, the directories repos.d and principals.d can have further entries of its lists repos and principals: a file
// NAME.yaml for each, with the keys of a list entry. They are read in lexical order, after the entries of the file. A program adds
// and removes an entry by writing and removing such a file (see Edit).
//
// Files are parsed strictly (see strict): every mistake is an error with its position, all of them are reported together, and then
// nothing of the files is used. A key without a value in any file has the value that Default returns.
//
// The structs Config, Repo, Principal and those of the sections are the tables of keys. To add a key, add a field with a comment
// and tags; `go test ./internal/config -run TestGenerated -update` rewrites schema.json, example.yaml and the tables of
// docs/reference/configuration.md.
//
// The package uses the words of package job, and has no knowledge of what the supervisor does with them.
package config

import _ "embed" // for Schema and Example

// DefaultPath is the path of the operator's file.
const DefaultPath = "/etc/corral/config.yaml"

// Schema is the JSON Schema of a file, draft 2020-12. It is generated.
//
//go:embed schema.json
var Schema string

// Example is a file with every key commented out, explained, and with the value that applies without it. It is generated.
//
//go:embed example.yaml
var Example string
