package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"corral/job"
	"corral/policy/network"
)

// A member is a name and a value of a JSON object; members are in the order in which they are written.
type member struct {
	name  string
	value any // members, or what encoding/json accepts
}

type members []member

// formSchemas are the JSON Schemas of forms, by name. Numbers without one are integers with a range.
var formSchemas = map[string]string{
	"size":           `{"$ref": "#/$defs/size"}`,
	"time.Duration":  `{"$ref": "#/$defs/time"}`,
	"wait":           `{"anyOf": [{"$ref": "#/$defs/time"}, {"const": "0"}]}`,
	"age":            `{"anyOf": [{"$ref": "#/$defs/time"}, {"type": "string", "pattern": "^[0-9]+d$"}]}`,
	"cpus":           `{"type": "number", "minimum": 0.01, "maximum": 1000}`,
	"bool":           `{"type": "boolean"}`,
	"version":        `{"const": 1}`,
	"user":           `{"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0, "maximum": 4294967294}]}`,
	"path":           `{"$ref": "#/$defs/path"}`,
	"etc-path":       `{"type": "string", "pattern": "^/etc/[^/]"}`,
	"repo-id":        `{"$ref": "#/$defs/id"}`,
	"profile":        `{"$ref": "#/$defs/name"}`,
	"new-profile":    `{"$ref": "#/$defs/name"}`,
	"name":           `{"$ref": "#/$defs/name"}`,
	"runtime":        `{"$ref": "#/$defs/any_runtime"}`,
	"language":       `{"$ref": "#/$defs/runtime"}`,
	"variable":       `{"$ref": "#/$defs/variable"}`,
	"value":          `{"anyOf": [{"type": "string"}, {"type": "number"}]}`,
	"program":        `{"type": "string", "pattern": "^(/.+|[^/]+)$"}`,
	"tool":           `{"type": "string", "pattern": "^[a-z0-9_]{1,64}$"}`,
	"hash":           `{"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}`,
	"config.Instant": `{"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$"}`,
	"address":        `{"type": "string", "pattern": "^.+:[0-9]{1,5}$"}`,
	"host":           `{"type": "string", "pattern": "^[^/?#@*, ]{1,255}$"}`,
	"origin":         `{"type": "string", "pattern": "^[a-z][a-z0-9+.-]*://[^/?#@*, ]+$"}`,
	"image":          `{"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}`,
	"collector":      `{"type": "string", "pattern": "^https?://[^/?#@]+(/[^?#]*)?$"}`,
	"service":        `{"type": "string", "minLength": 1, "maxLength": 255}`,
	"config.Listen":  `{"type": "string", "pattern": "^(stdio(://)?|unix:///.+|ws://.+:[0-9]{1,5}/?)$"}`,
	"network":        `{"type": "string", "pattern": "^[a-z0-9_.*:-]+([ ,]+[a-z0-9_.*:-]+)*$"}`,
	"host-pattern":   `{"type": "string", "pattern": "^(\\*\\.[a-z0-9_-]+\\.)?[a-z0-9_-]+(\\.[a-z0-9_-]+)*$"}`,
	"method":         `{"type": "string", "pattern": "^[A-Z-]{1,64}$"}`,
	"request-path":   `{"type": "string", "pattern": "^/[^ ?#\\\\]{0,511}$"}`,
	"secret":         `{"type": "string", "pattern": "^[a-z0-9_-]{1,64}$"}`,
	"header":         `{"type": "string", "pattern": "^[!#$%&'*+.^_|~0-9A-Za-z\\x60-]{1,64}$"}`,
	"secret-format":  `{"type": "string", "pattern": "^[ -~]*\\{\\}[ -~]*$", "maxLength": 256}`,
	"netip.Prefix":   `{"type": "string", "pattern": "^[0-9a-f.:]+/[0-9]{1,3}$"}`,
	"job.Workspace":  `{"enum": ["direct", "readonly", "overlay"]}`,
	"job.Protection": `{"enum": ["none", "hooks", "all"]}`,
	"job.Recording":  `{"enum": ["hash", "argv", "code"]}`,
}

// jsonSchema returns schema.json.
func (g *generator) jsonSchema() string {
	root := members{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "Configuration of corral"}}
	root = append(root, g.object(&document{Config: Default()})...)
	raw := func(s string) any { return json.RawMessage(s) }
	root = append(root, member{"$defs", members{
		{"path", raw(`{"type": "string", "pattern": "^/"}`)},
		{"id", raw(`{"type": "string", "minLength": 1, "maxLength": 128}`)},
		{"name", raw(`{"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}`)},
		{"variable", raw(`{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$"}`)},
		{"runtime", members{{"enum", job.Runtimes()}}},
		{"any_runtime", members{{"enum", job.AllRuntimes()}}},
		{"size", raw(`{"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]*\\.?[0-9]+ *([kKmMgGtT]([iI]?[bB])?|[bB])?$"}]}`)},
		{"time", raw(`{"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^([0-9]*\\.?[0-9]+(ns|us|µs|ms|s|m|h))+$"}]}`)},
		{"limits", g.object(new(job.Limits))},
		{"network", g.object(new(network.Rules))},
	}})
	return written(root, "") + "\n"
}

// object returns the schema of the mapping that into points to.
func (g *generator) object(into any) members {
	properties := members{}
	var required []string
	for _, k := range g.keys(into) {
		name, inner, nested := strings.Cut(k.Name, ".")
		schema := g.schemaOf(k)
		if nested {
			schema = members{{"type", "object"}, {"additionalProperties", false}, {"properties", members{{inner, schema}}}}
		}
		if k.without == "required" {
			required = append(required, name)
		}
		if value := k.Tag.Get("default") + k.Tag.Get("implied"); value != "" {
			schema = append(schema, member{"default", defaultOf(k, value)})
		}
		properties = append(properties, member{name, append(members{{"description", plain(k.full)}}, schema...)})
	}
	s := members{{"type", "object"}, {"additionalProperties", false}}
	if required != nil {
		s = append(s, member{"required", required})
	}
	return append(s, member{"properties", properties})
}

// defaultOf returns the JSON value of a default.
func defaultOf(k key, value string) any {
	switch t := k.Value.Type(); {
	case t.Kind() == reflect.Slice:
		return []string{value}
	case t.Kind() == reflect.Bool:
		return value == "true"
	case value == unlimitedWord || k.Tag.Get("form") == "size" || t == reflect.TypeFor[Fsync](), k.Value.Kind() == reflect.String,
		t.String() == "job.Protection", t.String() == "job.Recording":
		return value
	case t.String() == "time.Duration" && value != "0":
		return value
	}
	n, err := k.Form.Parse(value, "")
	if err != nil {
		panic(err)
	}
	return n
}

const unlimitedWord = "unlimited"

// schemaOf returns the schema of the value of a key.
func (g *generator) schemaOf(k key) members {
	element := k.element()
	switch element.(type) {
	case *job.Limits:
		return members{{"$ref", "#/$defs/limits"}}
	case *network.Rules:
		return members{{"$ref", "#/$defs/network"}}
	}
	switch t := k.Value.Type(); {
	case t.Kind() == reflect.Map:
		names := strings.Fields(k.Tag.Get("names"))
		var inner members
		if element != nil {
			inner = g.object(element)
		} else {
			inner = g.scalar(k, t.Elem())
		}
		for i := len(names) - 1; i >= 0; i-- {
			inner = members{{"type", "object"}, {"propertyNames", json.RawMessage(formSchemas[names[i]])}, {"additionalProperties", inner}}
		}
		return inner
	case t.Kind() == reflect.Slice:
		list := members{{"type", "array"}}
		if strings.Contains(k.Tag.Get("list"), "some") {
			list = append(list, member{"minItems", 1})
		}
		if element != nil {
			return append(list, member{"items", g.object(element)})
		}
		return append(list, member{"items", g.scalar(k, t.Elem())})
	case element != nil:
		return g.object(element)
	default:
		return g.scalar(k, t)
	}
}

// scalar returns the schema of one word or number.
func (g *generator) scalar(k key, t reflect.Type) members {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	var s members
	name := k.Tag.Get("form")
	if name == "" {
		name = t.String()
	}
	if k.Tag == "" { // a limit
		name = map[string]string{sizeForm.What: "size", cpusForm.What: "cpus", timeForm.What: "time.Duration"}[k.Form.What]
	}
	switch fixed, ok := formSchemas[name]; {
	case k.Form.Words != nil && !ok:
		s = members{{"enum", k.Form.Words}}
	case ok:
		var fragment map[string]json.RawMessage
		if err := json.Unmarshal([]byte(fixed), &fragment); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		for _, word := range []string{"$ref", "const", "enum", "type", "anyOf", "minimum", "maximum", "minLength", "maxLength", "pattern"} {
			if value, has := fragment[word]; has {
				s = append(s, member{word, value})
			}
		}
	case k.Bounded:
		s = members{{"type", "integer"}, {"minimum", k.Min}, {"maximum", k.Max}}
	default:
		panic("no schema for form " + name)
	}
	if k.Unlimited {
		return members{{"anyOf", []any{s, members{{"const", unlimitedWord}}}}}
	}
	return s
}

// written returns JSON, on one line where it fits.
func written(v any, indent string) string {
	const width = 150
	switch v := v.(type) {
	case members:
		var parts []string
		for _, m := range v {
			parts = append(parts, fmt.Sprintf("%q: %s", m.name, written(m.value, indent+"  ")))
		}
		if line := "{ " + strings.Join(parts, ", ") + " }"; len(indent)+len(line) <= width && !strings.Contains(line, "\n") {
			return line
		}
		return "{\n" + indent + "  " + strings.Join(parts, ",\n"+indent+"  ") + "\n" + indent + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, written(one, indent+"  "))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case json.RawMessage:
		return string(v)
	}
	b := &strings.Builder{}
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}
