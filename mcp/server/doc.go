// Package server serves tools to agent hosts in the Model Context Protocol, over stdio and over Streamable HTTP, in protocol
// versions up to 2026-07-28.
//
// New makes a Server from a list of tools; ServeStdio serves one client on standard input and output, Serve and Handler serve
// many clients over HTTP. Creating a server, initialize and tools/list start no process and change nothing, because hosts start
// servers only to inspect them.
//
// It knows tools by the interface tool.Tool. Package tool has what each of them needs, run what those share that run jobs; the
// tools are in execute (sandbox_exec, starlark_run, runtime_*), ctxtools (ctx_*) and agent (run, output and job, which replace an
// agent's shell). A front-end makes the tools with what they need to run, and a server with the tools.
//
// The library mcp-go defines the messages and the versions of the protocol. Its server is only compared with (TestLikeMCPGo). An
// incoming message has at most 10 MiB, an outgoing one 9 MiB; a client has at most 256 requests with 64 MiB of messages in flight,
// and at most 64 MiB of responses are buffered for a client that does not read.
//
//   - A message is parsed strictly: UTF-8, no duplicate keys, no key of the protocol in another case, at most 64 levels
//     of nesting. A tool receives its arguments as the client wrote them.
//   - A request gets one response. A cancelled request gets none, and its tool is not started if it was not running yet.
//   - Progress notifications of a request precede its response, never follow it, and are sent on the request's own stream.
//   - A tool's result is structuredContent, and the same JSON as text if it is short. An *Error becomes a result with
//     isError; JSON-RPC errors are for protocol faults. A panic in a tool becomes INTERNAL and ends that call only.
//   - A call's context ends when the client cancels the call, when an HTTP client closes its POST, and when the call's
//     session or connection ends.
//   - A call is one line of the diagnostic log and, if there is a Tracer, one span in the client's trace. Neither contains
//     arguments or results (package internal/calls).
//   - Over HTTP every request needs a bearer token, and a session belongs to the principal that opened it.
//
// No exported identifier uses mcp-go's types.
package server
