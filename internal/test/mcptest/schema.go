package mcptest

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"corral/mcp/tool"
)

// ReadSchema returns a schema as a client decodes it.
func ReadSchema(t testing.TB, raw json.RawMessage) *jsonschema.Schema {
	t.Helper()
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(raw, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// resolved has the schemas that CheckReply has used, by their text: a fuzz test uses one for each input.
var resolved sync.Map

// CheckReply checks that a tool's output schema describes v, and names each of its properties.
func CheckReply(t testing.TB, target tool.Tool, v any) {
	t.Helper()
	raw := target.Definition().Output
	known, ok := resolved.Load(string(raw))
	if !ok {
		s := ReadSchema(t, raw)
		closeObjects(s)
		r, err := s.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		known, _ = resolved.LoadOrStore(string(raw), r)
	}
	if err := known.(*jsonschema.Resolved).Validate(v); err != nil {
		t.Errorf("%s: the reply violates the schema: %v\n%v", target.Name(), err, v)
	}
}

// closeObjects allows no properties but those that a schema names. The published ones leave that open for later versions.
func closeObjects(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil && s.AdditionalProperties == nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	closeObjects(s.Items)
	for _, p := range s.Properties {
		closeObjects(p)
	}
}
