package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	safe "corral/internal/text"
)

// A Tool is one tool of the server. Making one has no side effects; they are listed where the server is made.
type Tool interface {
	// Name is the name without dots; Definition has both.
	Name() string
	Definition() Definition
	// Call does the work. arguments is one JSON object without duplicate keys. An *Error is a result with isError; any
	// other error is reported as INTERNAL. When ctx ends the call is cancelled, and must return soon.
	Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error)
}

// A Definition is what tools/list says of a tool.
type Definition struct {
	Name        string // [a-z_]+: hosts refuse dots
	Dotted      string // the name with dots, if it has one: calls may use either
	Title       string
	Description string          // at most 2 KiB
	Input       json.RawMessage // JSON Schema with a plain object root
	Output      json.RawMessage // the same; an error's fields (code, message, details) are optional in it
	ReadOnly    bool            // the four annotations
	Destructive bool
	Idempotent  bool
	OpenWorld   bool
}

// span is what the tool's span is called: the family, a dot, and the rest as one word. runtime_query_output is
// runtime.queryOutput.
func (d *Definition) span() string {
	family, rest, _ := strings.Cut(d.Name, "_")
	words := strings.Split(rest, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.TrimSuffix(family+"."+strings.Join(words, ""), ".")
}

// A ToolResult is a tool's answer.
type ToolResult struct {
	Structured any    // structuredContent: a JSON object
	Text       string // the text block where the JSON of Structured is not it: above 64 KiB, or without Structured
	Whole      bool   // Text is the text block, whatever Structured is and however long it is
	IsError    bool
}

// An Error is a call that was refused or failed. It is a result with isError, and its structuredContent has these
// fields.
type Error struct {
	Code    string         `json:"code"` // one of the Code constants
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Codes of an Error. The table in docs/reference/errors.md explains them.
const (
	CodeInvalid     = "INVALID_REQUEST" // the arguments are not as the schema says
	CodeNotFound    = "NOT_FOUND"       // no such repository or artifact, for this principal
	CodeExpired     = "EXPIRED"         // the artifact was kept for its time
	CodeCorrupt     = "CORRUPT"         // what is stored is not what was stored
	CodeUnsupported = "UNSUPPORTED"     // asked for what this version does not have
	CodeDenied      = "DENIED"          // the policy is against it
	CodeUnavailable = "UNAVAILABLE"     // the supervisor cannot be reached, has no room, or does not serve the repository
	CodeInternal    = "INTERNAL"        // corral itself failed
	// Of starlark_run alone.
	CodeTimeout     = "TIMEOUT"      // the program did not end in its time
	CodeOutputLimit = "OUTPUT_LIMIT" // it wrote more than it may
	CodeEval        = "EVAL_ERROR"   // it is no Starlark, or went wrong
	CodeMemoryLimit = "MEMORY_LIMIT" // it needed more memory than it may have
)

// A Caller is who calls a tool.
type Caller struct {
	Principal string // "user:NAME" or "token:NAME"
	Session   string // never "": the connection's, the HTTP session's, or the principal's
	Trace     string // trace id of the call, 32 hex digits
	// Repos and Tools are what the principal may use; nil is everything that is configured.
	Repos, Tools []string
	// Progress reports to the client if it asked for it; never nil.
	Progress func(progress float64, message string)
	quiet    bool // it did not
}

// served returns which of the repositories that a server serves the caller may use; never nil.
func (c Caller) served(repos []string) []string {
	may := []string{}
	for _, id := range repos {
		if c.Repos == nil || slices.Contains(c.Repos, id) {
			may = append(may, id)
		}
	}
	return may
}

// repo returns the repository of a call that names none: configured or, if that is "", the first that the caller may use of
// those that are served. What the caller may not use is an error, which says so with what a repository is needed for.
func (c Caller) repo(repos []string, configured, purpose string) (string, error) {
	served := c.served(repos)
	switch {
	case configured == "" && len(served) > 0:
		return served[0], nil
	case configured != "" && slices.Contains(served, configured):
		return configured, nil
	}
	return "", &Error{Code: CodeNotFound, Message: "there is no repository that you may use" + purpose}
}

// mayUse is an error unless the caller may use the repository that it names, of those that are served.
func (c Caller) mayUse(repos []string, named string) error {
	served := c.served(repos)
	if slices.Contains(served, named) {
		return nil
	}
	return &Error{
		Code: CodeNotFound, Message: "Repository " + safe.Line(named, maxShown) + " not found",
		Details: map[string]any{"repositories": served[:min(len(served), maxNamed)]},
	}
}

// maxNamed is how many repositories an error names.
const maxNamed = 50

type callerKey struct{}

// WithCaller returns a context that carries c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller that ctx carries; without one, nobody, who may use nothing.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Repos: []string{}, Tools: []string{}, Progress: func(float64, string) {}}
}
