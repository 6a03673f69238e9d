package mcp

import (
	"bytes"
	"encoding/json"
)

// A schema is the subset of JSON Schema that the tools use, with its keys in this order.
type schema struct {
	Type        any        `json:"type,omitempty"` // a string, or a list of strings
	Description string     `json:"description,omitempty"`
	Enum        []string   `json:"enum,omitempty"`
	Default     any        `json:"default,omitempty"`
	Minimum     *int       `json:"minimum,omitempty"`
	Maximum     *int       `json:"maximum,omitempty"`
	MinLength   int        `json:"minLength,omitempty"`
	MaxLength   int        `json:"maxLength,omitempty"`
	Pattern     string     `json:"pattern,omitempty"`
	Items       *schema    `json:"items,omitempty"`
	MaxItems    int        `json:"maxItems,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	Additional  *bool      `json:"additionalProperties,omitempty"`
}

// properties are an object's properties, in the order of the argument table.
type properties []property

type property struct {
	name   string
	schema *schema
}

// MarshalJSON implements json.Marshaler. It keeps the order of p.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for n, one := range p {
		if n > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(one.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(one.schema)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// inputSchema returns the JSON Schema of a tool's arguments. Limits in bytes are published as limits in characters, which is
// the same or less strict.
func inputSchema(fields []field) json.RawMessage { return encode(objectSchema(fields)) }

// openSchema returns the schema of a tool that ignores unknown arguments.
func openSchema(fields []field) json.RawMessage {
	s := objectSchema(fields)
	s.Additional = nil
	return encode(s)
}

func objectSchema(fields []field) *schema {
	closed := false
	s := &schema{Type: "object", Additional: &closed}
	for n := range fields {
		f := &fields[n]
		s.Properties = append(s.Properties, property{f.name, f.schema()})
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func (f *field) schema() *schema {
	text := schema{Type: "string", Enum: f.enum, MinLength: f.min, MaxLength: f.max, Pattern: f.expr}
	s := &text
	switch into := f.into.(type) {
	case *string:
		if *into != "" {
			s.Default = *into
		}
	case *int:
		s = &schema{Type: "integer", Minimum: &f.min, Maximum: &f.max}
		if *into != 0 {
			s.Default = *into
		}
	case *[]string:
		s = &schema{Type: "array", Items: &text, MaxItems: f.items}
	case *bool:
		if f.each != nil {
			one := objectSchema(f.each())
			one.Additional = nil
			s = &schema{Type: "array", Items: one, MaxItems: f.items}
			break
		}
		if f.fields != nil {
			s = objectSchema(f.fields)
			break
		}
		s = &schema{Type: "boolean", Default: *into}
	}
	s.Description = f.about
	return s
}

// encode encodes a schema, which cannot fail: a test encodes each one.
func encode(s *schema) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// replySchema returns the schema of a tool's results. It requires no field, because clients validate errors with it, too.
func replySchema(p properties) json.RawMessage {
	return encode(&schema{Type: "object", Properties: append(p,
		property{"code", &schema{Type: "string", Description: "of an error: what kind it is"}},
		property{"details", &schema{Type: "object", Description: "of an error: about what it is"}},
	)})
}

func integer(about string) *schema { return &schema{Type: "integer", Description: about} }

func text(about string) *schema { return &schema{Type: "string", Description: about} }

func boolean(about string) *schema { return &schema{Type: "boolean", Description: about} }

func nullable(kind string) []string { return []string{kind, "null"} }
