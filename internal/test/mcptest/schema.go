package mcptest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"corral/mcp/tool"
)

// A view is a schema as a client decodes it, with the keywords that the tools use.
type view struct {
	Type                           any // a string, or a list of strings
	Enum, Required                 []string
	Minimum, Maximum               *int
	MinLength, MaxLength, MaxItems int
	Items                          *view
	Properties                     []viewProperty
}

type viewProperty struct {
	Name   string
	schema *view
}

// Published returns a tool's output schema as a client decodes it.
func Published(t *testing.T, tool tool.Tool) *view {
	t.Helper()
	return ReadSchema(t, tool.Definition().Output)
}

// ReadSchema returns a schema as a client decodes it.
func ReadSchema(t *testing.T, raw json.RawMessage) *view {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return schemaOf(v.(map[string]any))
}

// schemaOf decodes a schema. It ignores keywords that it does not know, and wrong does not check them.
func schemaOf(v map[string]any) *view {
	s := &view{Type: v["type"]}
	if list, ok := s.Type.([]any); ok {
		var words []string
		for _, one := range list {
			words = append(words, one.(string))
		}
		if slices.Contains(words, "integer") {
			words = append(words, "number")
		}
		s.Type = words
	}
	for _, one := range listOf(v["enum"]) {
		s.Enum = append(s.Enum, one.(string))
	}
	for _, one := range listOf(v["required"]) {
		s.Required = append(s.Required, one.(string))
	}
	for name, to := range map[string]**int{"minimum": &s.Minimum, "maximum": &s.Maximum} {
		if n, ok := v[name].(float64); ok {
			i := int(n)
			*to = &i
		}
	}
	for name, to := range map[string]*int{"minLength": &s.MinLength, "maxLength": &s.MaxLength, "maxItems": &s.MaxItems} {
		n, _ := v[name].(float64)
		*to = int(n)
	}
	if items, ok := v["items"].(map[string]any); ok {
		s.Items = schemaOf(items)
	}
	if all, ok := v["properties"].(map[string]any); ok {
		for name, one := range all {
			s.Properties = append(s.Properties, viewProperty{name, schemaOf(one.(map[string]any))})
		}
	}
	return s
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// Wrong returns how v violates s, "" if it does not. It implements only the keywords that package mcp uses.
func (s *view) Wrong(v any) string {
	if !slices.Contains(types(s.Type), typeOf(v)) {
		return fmt.Sprintf("%v is %s, not %v", v, typeOf(v), s.Type)
	}
	switch v := v.(type) {
	case map[string]any:
		return s.wrongObject(v)
	case []any:
		if s.MaxItems > 0 && len(v) > s.MaxItems {
			return "too many entries"
		}
		for _, one := range v {
			if why := s.Items.Wrong(one); why != "" {
				return why
			}
		}
	case float64:
		if s.Minimum != nil && v < float64(*s.Minimum) || s.Maximum != nil && v > float64(*s.Maximum) {
			return fmt.Sprintf("%v is out of range", v)
		}
	case string:
		n := len([]rune(v))
		if s.Enum != nil && !slices.Contains(s.Enum, v) || n < s.MinLength || s.MaxLength > 0 && n > s.MaxLength {
			return fmt.Sprintf("%q is too short, too long, or not in the enum", v)
		}
	}
	return ""
}

func (s *view) wrongObject(v map[string]any) string {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return "no " + name
		}
	}
	for name, value := range v {
		if s.Properties == nil {
			break // any
		}
		n := slices.IndexFunc(s.Properties, func(p viewProperty) bool { return p.Name == name })
		if n < 0 {
			return "not in the schema: " + name
		}
		if why := s.Properties[n].schema.Wrong(value); why != "" {
			return name + ": " + why
		}
	}
	return ""
}

func types(t any) []string {
	if list, ok := t.([]string); ok {
		return list
	}
	one, _ := t.(string)
	if one == "number" || one == "integer" {
		return []string{"number", "integer"}
	}
	return []string{one}
}

func typeOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	}
	return "null"
}
