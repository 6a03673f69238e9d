package server

import (
	"testing"

	"corral/internal/jsonrpc"
)

// TestProtocolErrorsQuote: JSON-RPC errors quote what a client wrote.
func TestProtocolErrorsQuote(t *testing.T) {
	if got := string(dialect.Error(nil, jsonrpc.Errorf(jsonrpc.CodeRequest, "no method \u009b%s", "\u202e"))); got != `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no method \\u009b\\u202e"}}` {
		t.Errorf("%s", got)
	}
}
