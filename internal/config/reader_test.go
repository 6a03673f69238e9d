package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A schema is the part of JSON Schema that schema.json uses; another word in it fails the test.
type schema struct {
	Schema      string             `json:"$schema"`
	Title       string             `json:"title"`
	Description string             `json:"description"`
	Default     any                `json:"default"`
	Type        string             `json:"type"`
	Additional  *additional        `json:"additionalProperties"`
	Names       *schema            `json:"propertyNames"`
	Required    []string           `json:"required"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	MinItems    int                `json:"minItems"`
	MinLength   int                `json:"minLength"`
	MaxLength   int                `json:"maxLength"`
	Enum        []string           `json:"enum"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	Pattern     string             `json:"pattern"`
	Const       any                `json:"const"`
	AnyOf       []*schema          `json:"anyOf"`
	Ref         string             `json:"$ref"`
	Defs        map[string]*schema `json:"$defs"`
}

// additional says what unknown keys may be: nothing, or what a schema accepts.
type additional struct{ schema *schema }

func (a *additional) UnmarshalJSON(b []byte) error {
	if string(b) == "false" {
		return nil
	}
	a.schema = &schema{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(a.schema)
}

func readSchema(t *testing.T) *schema {
	t.Helper()
	var s schema
	d := json.NewDecoder(strings.NewReader(Schema))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// wrong returns why the schema refuses v, "" if it accepts it.
func (s *schema) wrong(root *schema, v any) string {
	if s.Ref != "" {
		def := root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		if def == nil {
			return "no such definition: " + s.Ref
		}
		if why := def.wrong(root, v); why != "" {
			return why
		}
	}
	if s.AnyOf != nil && !slices.ContainsFunc(s.AnyOf, func(one *schema) bool { return one.wrong(root, v) == "" }) {
		return fmt.Sprintf("%v is none of these", v)
	}
	if s.Const != nil && fmt.Sprint(s.Const) != fmt.Sprint(v) {
		return fmt.Sprintf("%v is not %v", v, s.Const)
	}
	switch v := v.(type) {
	case map[string]any:
		return s.wrongObject(root, v)
	case []any:
		if s.Type == "" && s.Enum == nil && s.Const == nil {
			return "" // a reference or a choice has looked at it
		}
		if s.Type != "array" {
			return "a list"
		}
		for _, one := range v {
			if why := s.Items.wrong(root, one); why != "" {
				return why
			}
		}
		return s.unless(len(v) >= s.MinItems, v)
	case string:
		length := utf8.RuneCountInString(v)
		fits := regexp.MustCompile(s.Pattern).MatchString(v) && length >= s.MinLength && (s.MaxLength == 0 || length <= s.MaxLength) &&
			(s.Enum == nil || slices.Contains(s.Enum, v))
		return s.unless((s.Type == "" || s.Type == "string") && fits, v)
	case bool:
		return s.unless((s.Type == "" || s.Type == "boolean") && s.Enum == nil, v)
	case int:
		return s.wrongNumber(float64(v), s.Type == "" || s.Type == "integer" || s.Type == "number")
	case float64:
		return s.wrongNumber(v, s.Type == "" || s.Type == "number")
	}
	return fmt.Sprintf("%v (%T)", v, v)
}

func (s *schema) unless(ok bool, v any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf("%v is no %s %s", v, s.Type, s.Pattern)
}

func (s *schema) wrongNumber(v float64, typed bool) string {
	return s.unless(typed && (s.Minimum == nil || v >= *s.Minimum) && (s.Maximum == nil || v <= *s.Maximum), v)
}

func (s *schema) wrongObject(root *schema, v map[string]any) string {
	if s.Enum != nil || s.Type != "" && s.Type != "object" {
		return "a mapping"
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return "no " + name
		}
	}
	for name, value := range v {
		p := s.Properties[name]
		if p == nil && s.Additional != nil {
			p = s.Additional.schema
		}
		if p == nil && s.Type != "" {
			return "unknown: " + name
		}
		if s.Names != nil {
			if why := s.Names.wrong(root, name); why != "" {
				return why
			}
		}
		if p != nil {
			if why := p.wrong(root, value); why != "" {
				return name + ": " + why
			}
		}
	}
	return ""
}
