// Package tool defines what every tool of the MCP server needs: the interface Tool, callers and errors, the decoding of
// arguments, and the schemas of arguments and results.
//
// A tool's arguments are a struct whose tags describe them (see Decode and InputSchema), its result is a struct that is encoded
// as JSON (see ReplySchema). The protocol is in package server.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	safe "corral/internal/text"
)

// A Tool is one tool of the server. Creating one must have no side effects.
type Tool interface {
	// Name returns the name without dots; Definition has both.
	Name() string
	// Definition returns what clients are told of the tool. It is the same in each call.
	Definition() Definition
	// Call runs the tool. arguments is a JSON object without duplicate keys. An *Error is returned to the client as a result
	// with isError; any other error is reported as INTERNAL. After ctx ends, Call must return soon.
	Call(ctx context.Context, arguments json.RawMessage) (Result, error)
}

// A Definition is the published description of a tool (tools/list).
type Definition struct {
	Name        string // [a-z_]+, because hosts refuse dots
	Dotted      string // name with dots, "" if there is none: calls may use either
	Title       string
	Description string          // at most 2 KiB
	Input       json.RawMessage // JSON Schema with a plain object root
	Output      json.RawMessage // the same; an error's fields (code, message, details) are optional in it
	// TextOnly means that the text block is the whole reply: only a server that is told to publishes Output and sends
	// structuredContent. Errors always have theirs.
	TextOnly    bool
	ReadOnly    bool // the four annotations
	Destructive bool
	Idempotent  bool
	OpenWorld   bool
}

// Span returns the name of the tool's spans: runtime.queryOutput for runtime_query_output.
func (d *Definition) Span() string {
	family, rest, _ := strings.Cut(d.Name, "_")
	words := strings.Split(rest, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.TrimSuffix(family+"."+strings.Join(words, ""), ".")
}

// A Result is the result of a call.
type Result struct {
	Structured any    // structuredContent: a JSON object
	Text       string // text block if the JSON of Structured is not used for it: above 64 KiB, or if Structured is nil
	Whole      bool   // Text is the text block in any case
	IsError    bool
	Image      *Image // follows the text block; nil for none
	// Code is that of an error without Structured, for the diagnostic log; "" is none.
	Code string
}

// An Image is an image in a result. In base64, it must be shorter than MaxMessage.
type Image struct {
	Type string // such as image/png
	Data []byte
}

// An Error reports a call that was refused or failed. It becomes a result with isError and these fields as structuredContent.
type Error struct {
	Code    string         `json:"code"` // one of the Code constants
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Codes of an Error. The table in docs/reference/errors.md explains them.
const (
	CodeInvalid     = "INVALID_REQUEST" // the arguments do not conform to the schema
	CodeNotFound    = "NOT_FOUND"       // no such repository or artifact for this principal
	CodeExpired     = "EXPIRED"         // the artifact's retention period is over
	CodeCorrupt     = "CORRUPT"         // the stored data has been damaged
	CodeUnsupported = "UNSUPPORTED"     // this server does not have the feature
	CodeDenied      = "DENIED"          // the policy forbids it
	CodeUnavailable = "UNAVAILABLE"     // the supervisor cannot be reached, is full, or does not serve the repository
	CodeInternal    = "INTERNAL"        // corral itself failed
	// Of starlark_run only.
	CodeTimeout     = "TIMEOUT"      // the program exceeded its time limit
	CodeOutputLimit = "OUTPUT_LIMIT" // the program wrote more than its limit
	CodeEval        = "EVAL_ERROR"   // the program is invalid or failed
	CodeMemoryLimit = "MEMORY_LIMIT" // the program exceeded its memory limit
)

// A Caller identifies the caller of a tool, and what it may use.
type Caller struct {
	Principal string // "user:NAME" or "token:NAME"
	Session   string // never "": identifies the connection, the HTTP session or, without sessions, the principal
	Trace     string // trace id of the call, 32 hex digits
	Called    string // name by which the tool was called: one of the two of its Definition
	// Repos and Tools are the repositories and tools that the principal may use; nil is all that are configured.
	Repos, Tools []string
	// Progress sends progress to the client if it requested that; never nil.
	Progress   func(progress float64, message string)
	NoProgress bool // the client requested no progress
	// Removed are the ids of repositories that the server served, and does not any more.
	Removed []string
	// Defaults remembers the repositories of the session's calls that name none; nil remembers nothing.
	Defaults *Defaults
}

// Served returns the elements of repos that the caller may use; never nil.
func (c Caller) Served(repos []string) []string {
	may := []string{}
	for _, id := range repos {
		if c.Repos == nil || slices.Contains(c.Repos, id) {
			may = append(may, id)
		}
	}
	return may
}

// Repo returns the repository of a call that does not name one: configured, or if that is "", the first of repos that the
// caller may use. purpose is appended to the error message if there is none.
func (c Caller) Repo(repos []string, configured, purpose string) (string, error) {
	served := c.Served(repos)
	switch {
	case configured == "" && c.Defaults.get(purpose) != "":
		return c.remembered(served, c.Defaults.get(purpose))
	case configured == "" && len(served) > 0:
		return c.Defaults.set(purpose, served[0]), nil
	case configured != "" && slices.Contains(served, configured):
		return configured, nil
	}
	return "", &Error{Code: CodeNotFound, Message: "you may not use any repository" + purpose}
}

// MayUse returns an error unless named is one of repos and the caller may use it.
func (c Caller) MayUse(repos []string, named string) error {
	served := c.Served(repos)
	if slices.Contains(served, named) {
		return nil
	}
	message := "Repository " + safe.Line(named, MaxShown) + " not found"
	if slices.Contains(c.Served(c.Removed), named) {
		message += ": the operator has removed it from the configuration"
	}
	return &Error{
		Code: CodeNotFound, Message: message,
		Details: map[string]any{"repositories": served[:min(len(served), maxNamed)]},
	}
}

// maxNamed is the maximum number of repositories that an error lists.
const maxNamed = 50

type callerKey struct{}

// WithCaller returns a context that carries c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller in ctx, or one without any permission if there is none.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Repos: []string{}, Tools: []string{}, Progress: func(float64, string) {}}
}

// AsError returns err as an *Error, with code INTERNAL unless it is one.
func AsError(err error) *Error {
	fault := Error{Code: CodeInternal, Message: err.Error()}
	if e := (*Error)(nil); errors.As(err, &e) {
		fault = *e
	}
	fault.Message = safe.Lines(fault.Message)
	return &fault
}

// ErrorResult returns an error result whose text block is the message and the hint.
func ErrorResult(err error) Result {
	e := AsError(err)
	text := e.Message
	if hint, ok := e.Details["hint"].(string); ok {
		text += "\nhint: " + hint
	}
	return Result{Structured: e, Text: Clean(text), Whole: true, IsError: true}
}

// TextResult returns a result whose text block is text. Clients show either the text block or structuredContent, so structured
// should have the text as its field "text", too.
func TextResult(structured any, text string, isError bool) Result {
	return Result{Structured: structured, Text: text, Whole: true, IsError: isError}
}
