package tool

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Schema is the subset of JSON Schema that the tools use, with its keys in this order.
type Schema struct {
	Type        any        `json:"type,omitempty"` // a string, or a list of strings
	Description string     `json:"description,omitempty"`
	Enum        []string   `json:"enum,omitempty"`
	Default     any        `json:"default,omitempty"`
	Minimum     *int       `json:"minimum,omitempty"`
	Maximum     *int       `json:"maximum,omitempty"`
	MinLength   int        `json:"minLength,omitempty"`
	MaxLength   int        `json:"maxLength,omitempty"`
	Pattern     string     `json:"pattern,omitempty"`
	Items       *Schema    `json:"items,omitempty"`
	MaxItems    int        `json:"maxItems,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	Additional  *bool      `json:"additionalProperties,omitempty"`
}

// properties are an object's properties, in the order of the argument table.
type properties []property

type property struct {
	name   string
	schema *Schema
}

// Property returns the schema of a property, nil if there is none.
func (s *Schema) Property(name string) *Schema {
	for _, p := range s.Properties {
		if p.name == name {
			return p.schema
		}
	}
	return nil
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

// InputSchema returns the JSON Schema of a tool's arguments, which are fields of the struct v. Limits in bytes are published as
// limits in characters, which is the same or less strict. adjust, if not nil, changes defaults that are known at run time only.
func InputSchema(v any, mode Mode, adjust func(*Schema)) json.RawMessage {
	t := reflect.TypeOf(v)
	s := objectSchema(t, argumentsOf(t), mode)
	if adjust != nil {
		adjust(s)
	}
	return encode(s)
}

func objectSchema(t reflect.Type, list []argument, mode Mode) *Schema {
	s := &Schema{Type: "object"}
	if mode == Strict {
		s.Additional = new(bool)
	}
	for n := range list {
		a := &list[n]
		if a.hidden {
			continue
		}
		s.Properties = append(s.Properties, property{a.name, a.schema(t.FieldByIndex(a.index).Type, mode)})
		if a.required {
			s.Required = append(s.Required, a.name)
		}
	}
	return s
}

func (a *argument) schema(t reflect.Type, mode Mode) *Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text := Schema{Type: "string", Enum: a.enum, MinLength: a.min, MaxLength: a.max}
	if a.pattern != nil {
		text.Pattern = a.pattern.String()
	}
	s := &text
	switch t.Kind() { //nolint:exhaustive // the kinds of argumentsOf
	case reflect.Int:
		s = &Schema{Type: "integer", Minimum: &a.min, Maximum: &a.max}
	case reflect.Bool:
		s = &Schema{Type: "boolean"}
	case reflect.Struct:
		s = objectSchema(t, a.members, mode)
	case reflect.Slice:
		s = &Schema{Type: "array", Items: &text, MaxItems: a.items}
		if t.Elem().Kind() == reflect.Struct {
			s.Items = objectSchema(t.Elem(), a.members, mode)
		}
	}
	if v := a.defaultOf(t); v != "" && v != 0 {
		s.Default = v
	}
	s.Description = a.about
	return s
}

// ReplySchema returns the schema of a tool's results, which are of type T: the fields with a json tag, and their values if they have
// a tag enum. An object with the tag schema:"outline" has no properties there. There are no descriptions, which every client would
// pay for with each session. No field is required, because clients validate errors with it, too: it has the fields of an Error.
func ReplySchema[T any]() json.RawMessage {
	return withError(resultSchema(reflect.TypeFor[T]()))
}

// ReplyOutline is like ReplySchema, but describes only the top-level fields of T: nested objects and array elements have a type and no
// properties. It keeps the schema of a large reply short.
func ReplyOutline[T any]() json.RawMessage {
	s := resultSchema(reflect.TypeFor[T]())
	for _, p := range s.Properties {
		p.schema.Properties = nil
		if items := p.schema.Items; items != nil {
			items.Properties = nil
		}
	}
	return withError(s)
}

// withError encodes the schema of a reply, to which it adds the fields of an Error.
func withError(s *Schema) json.RawMessage {
	if !slices.ContainsFunc(s.Properties, func(p property) bool { return p.name == "message" }) {
		s.Properties = append(s.Properties, property{"message", &Schema{Type: "string"}})
	}
	s.Properties = append(s.Properties, property{"code", &Schema{Type: "string"}}, property{"details", &Schema{Type: "object"}})
	return encode(s)
}

// resultSchema returns the schema of values of a type as encoding/json encodes them.
func resultSchema(t reflect.Type) *Schema {
	switch t.Kind() { //nolint:exhaustive // others are encoded as objects
	case reflect.Pointer:
		return resultSchema(t.Elem())
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer"}
	case reflect.Slice:
		return &Schema{Type: "array", Items: resultSchema(t.Elem())}
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return &Schema{Type: "string"}
		}
		return &Schema{Type: "object", Properties: resultProperties(t)}
	}
	return &Schema{Type: "object"}
}

func resultProperties(t reflect.Type) properties {
	var list properties
	for n := range t.NumField() {
		f := t.Field(n)
		if f.Anonymous {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			list = append(list, resultProperties(embedded)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		s := resultSchema(f.Type)
		if word, ok := s.Type.(string); ok && f.Type.Kind() == reflect.Pointer && options == "" && s.Properties == nil {
			s.Type = []string{word, "null"}
		}
		if f.Tag.Get("schema") == "outline" {
			s.Properties = nil
		}
		if words := f.Tag.Get("enum"); words != "" {
			s.Enum = strings.Split(words, ",")
		}
		list = append(list, property{name, s})
	}
	return list
}

// encode encodes a schema, which cannot fail: a test encodes each one.
func encode(s *Schema) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}
