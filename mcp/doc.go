// Package mcp is the overview of corral's Model Context Protocol server. Tests of package front compare all tools with their
// documentation.
//
//   - tool: what every tool needs, from the decoding of arguments to the schema of results.
//   - run: what tools that run jobs share, as the description of a job's outcome.
//   - execute: sandbox_exec, starlark_run, and those whose names begin with runtime.
//   - ctxtools: ctx_execute, ctx_search and their siblings, with the state that they share.
//   - agent: run, output and job, which replace an agent's shell.
//   - server: the protocol over stdio and HTTP. It knows tools by the interface tool.Tool.
//
// A front-end makes the tools with what they need to run, and a server with the tools.
package mcp
