package server

import (
	"encoding/json"
	"net/http"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/mcp/tool"
)

// checkHeaders checks that the headers agree with the message, because proxies may have acted on the headers alone.
func checkHeaders(head http.Header, m *message) *jsonrpc.Error {
	switch version := head.Get(sdk.HeaderProtocolVersion); {
	case version == "":
		return jsonrpc.Errorf(codeHeader, "missing header %s", sdk.HeaderProtocolVersion)
	case m.meta.version == "":
		return jsonrpc.Errorf(jsonrpc.CodeParams, "missing key %s in _meta", sdk.MetaKeyProtocolVersion)
	case version != m.meta.version:
		return jsonrpc.Errorf(codeHeader, "header %s is %q, but _meta has %q", sdk.HeaderProtocolVersion, tool.Clip(version),
			tool.Clip(m.meta.version))
	case !sdk.IsValidProtocolVersion(version):
		return unsupported(version)
	}
	named := map[string]json.RawMessage{}
	for _, e := range m.params {
		if e.Key == "name" || e.Key == "uri" {
			named[e.Key] = e.Value
		}
	}
	params := strictjson.Encode(named)
	if err := sdk.ValidateStandardHeaders(head.Get, m.meta.version, sdk.MCPMethod(m.method), params); err != nil {
		return jsonrpc.Errorf(codeHeader, "%v", err)
	}
	return nil
}

// modernStatus returns the HTTP status of a JSON-RPC error since 2026-07-28.
func modernStatus(code int) int {
	switch code {
	case jsonrpc.CodeMethod:
		return http.StatusNotFound
	case jsonrpc.CodeParse, jsonrpc.CodeRequest, jsonrpc.CodeParams, codeHeader, codeVersion, sdk.MISSING_REQUIRED_CLIENT_CAPABILITY:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
