// Package mcp speaks the Model Context Protocol to agent hosts: tools over stdio and over Streamable HTTP, in the protocol
// versions up to 2026-07-28.
//
// A Tool is one file of this package; New makes a Server of them, ServeStdio serves one client by its standard streams,
// Serve and Handler serve many over HTTP. To make a server, to initialize and to list tools starts nothing and changes
// nothing: hosts start a process only to look.
//
// mcp-go knows what the protocol's messages mean (HandleMessage). Reading, writing, and what is under way are this
// package's own, and so are their bounds: a message has at most 10 MiB coming in and 9 MiB going out, a client has at
// most 256 requests and 64 MiB of them under way, and 64 MiB of answers wait for one that does not read.
//
//   - A message is read strictly before mcp-go sees it, and written anew for it: UTF-8, no key twice, none in another
//     case, at most 64 levels. A tool gets its arguments as they were written.
//   - A request gets one answer. One that was cancelled gets none, and its tool is not started if it had not been.
//   - Progress of a request comes before its answer, never after it, and nowhere but on its own stream.
//   - What a tool returns is structuredContent, and the same JSON as text while that is short. An *Error is a result
//     with isError; JSON-RPC errors are for faults of the protocol. A panic in a tool is INTERNAL and ends its call only.
//   - A call ends, by its context, when the client cancels it, when an HTTP client leaves its POST, when its session or
//     connection ends.
//   - A call is one line of the log and, where there is a Tracer, one span, in the trace that the client names. What it was
//     to do, and what came of it, is in neither (package internal/calls).
//   - Over HTTP nobody is served without a bearer token, and a session belongs to the principal that opened it.
//
// mcp-go's types are in no exported name.
package mcp
