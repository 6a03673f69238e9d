// Package strict decodes YAML files into tagged structs and reports every mistake with its file, line and column.
//
// A tag of a field is the row of a table: the key, the form of its value, its range, its default (see Row). What shows a
// configuration, its JSON Schema and its documentation are made from the same rows. An unknown key, a duplicate key, a value of
// another type or out of its range, an alias and a second document are mistakes. All of them are reported together.
//
// Several files can be decoded into one struct, one after another. The last one takes precedence: key by key in mappings, and as
// a whole for every other value.
//
// The package is the only importer of the YAML library. It works on the library's tree of nodes, which has positions, and never
// on what an alias stands for.
package strict

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Reader reads files into structs and collects the mistakes in them. The zero Reader with a Language is ready for use.
type Reader struct {
	Language Language

	errs  Errors
	files int
}

// Err returns the mistakes so far as Errors in the order of the files, nil if there are none.
func (r *Reader) Err() error {
	if len(r.errs) == 0 {
		return nil
	}
	r.errs.sort()
	return r.errs
}

// Parse returns the root of a file's document, absent after a mistake. user says that the file is a user's. The Node has the
// position of no value until it is parsed, so that a mistake can be about the file as a whole.
func (r *Reader) Parse(name string, content []byte, user bool) (root Node) {
	file := Node{reader: r, file: name, order: r.files, user: user}
	r.files++
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case err != nil && !errors.Is(err, io.EOF):
		file.syntax(err)
		return file
	case err != nil || first.Kind != yaml.DocumentNode || len(first.Content) != 1:
		file.Failf("the file is empty")
		return file
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		file.child(&second).Failf("a file must have one document, got a second one")
	case !errors.Is(err, io.EOF):
		file.syntax(err)
	}
	return file.child(first.Content[0])
}

// syntax records an error of the library, with the line that it names: "yaml: line 3: did not find expected key".
func (n Node) syntax(err error) {
	e := n.error(strings.TrimPrefix(err.Error(), "yaml: "))
	if rest, ok := strings.CutPrefix(e.Message, "line "); ok {
		number, message, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			e.Line, e.Message = line, message
		}
	}
	n.reader.errs = append(n.reader.errs, e)
}

// Decode decodes the mapping n into the struct that into points to, whose other fields stay as they are. An absent n changes
// nothing. name is the key of n, "" for a file.
func (r *Reader) Decode(n Node, name string, into any) {
	if n.Present() {
		r.value(n, Row{Name: name, Value: reflect.ValueOf(into).Elem()})
	}
}

// value decodes n into row.Value.
func (r *Reader) value(n Node, row Row) {
	v := row.Value
	if rows, ok := r.Language.Rows(v); ok && row.Form.Parse == nil {
		r.mapping(n, row.Name, rows)
		return
	}
	if row.optional() {
		mapping := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			mapping.Elem().Set(v.Elem())
		}
		v.Set(mapping)
		row.Value = mapping.Elem()
		r.value(n, row)
		return
	}
	switch v.Kind() {
	case reflect.Slice:
		r.list(n, row)
	case reflect.Map:
		r.entries(n, row, strings.Fields(row.Tag.Get("names")))
	case reflect.Pointer:
		row.Value = reflect.New(v.Type().Elem()).Elem()
		if r.scalar(n, row) {
			v.Set(row.Value.Addr())
		}
	default:
		r.scalar(n, row)
	}
}

// pairs calls visit for each key of n, which must be a mapping without duplicate keys.
func (r *Reader) pairs(n Node, name string, visit func(key string, k, v Node)) {
	if !n.IsMapping() {
		n.mustBe(name, "a mapping (`key: value`)")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.yaml.Content); i += 2 {
		k, v := n.child(n.yaml.Content[i]), n.child(n.yaml.Content[i+1])
		key := k.yaml.Value
		if k.yaml.Kind != yaml.ScalarNode {
			k.Failf("a key must be a name, got %s", k.found())
			continue
		}
		if line, twice := seen[key]; twice {
			k.Failf("duplicate key `%s`, first on line %d", Shown(key), line)
			continue
		}
		seen[key] = k.yaml.Line
		visit(key, k, v)
	}
}

func (r *Reader) mapping(n Node, name string, rows []Row) {
	r.pairs(n, name, func(key string, k, v Node) {
		names := make([]string, 0, len(rows))
		for _, row := range rows {
			head, tail, nested := strings.Cut(row.Name, ".")
			if head != key {
				names = append(names, head)
				continue
			}
			if n.user && row.Tag.Get("scope") == "supervisor" {
				v.Failf("`%s` %s", key, r.Language.Supervisor)
				return
			}
			if row.Name = tail; nested {
				r.mapping(v, key, []Row{row})
				return
			}
			row.Name = key
			r.value(v, row)
			return
		}
		k.Unknown("key", key, names)
	})
}

// list decodes a list, which replaces that of an earlier file. A list of mappings gets an element for each entry, faulty ones
// included, so that an element and its Node have the same index.
func (r *Reader) list(n Node, row Row) {
	if n.yaml.Kind != yaml.SequenceNode {
		n.mustBe(row.Name, "a list")
		return
	}
	tag := row.Tag.Get("list")
	if len(n.yaml.Content) == 0 && strings.Contains(tag, "some") {
		n.Failf("`%s` is empty: name at least one, or leave it out", row.Name)
	}
	all := reflect.MakeSlice(row.Value.Type(), 0, len(n.yaml.Content))
	seen := map[any]bool{}
	for _, item := range n.Items() {
		one := row
		one.Value = reflect.New(all.Type().Elem()).Elem()
		if row.Form.Parse == nil {
			r.value(item, one)
		} else if !r.scalar(item, one) {
			continue
		} else if value := one.Value.Interface(); seen[value] && !strings.Contains(tag, "repeats") {
			item.Failf("`%s`: duplicate entry %q", row.Name, Shorten(item.yaml.Value))
		} else {
			seen[value] = true
		}
		all = reflect.Append(all, one.Value)
	}
	row.Value.Set(all)
}

// entries decodes a map, whose keys are texts of the forms that names has.
func (r *Reader) entries(n Node, row Row, names []string) {
	r.pairs(n, row.Name, func(key string, k, v Node) {
		if len(names) > 0 {
			if _, ok := r.Language.Forms[names[0]].read(key, k); !ok {
				return
			}
		}
		all := row.Value
		one := row
		one.Name, one.Value = key, reflect.New(all.Type().Elem()).Elem()
		if old := all.MapIndex(reflect.ValueOf(key)); old.IsValid() {
			one.Value.Set(old)
		}
		if one.Value.Kind() != reflect.Map {
			r.value(v, one)
		} else if r.entries(v, one, names[1:]); one.Value.IsNil() {
			return
		}
		if all.IsNil() {
			all.Set(reflect.MakeMap(all.Type()))
		}
		all.SetMapIndex(reflect.ValueOf(key), one.Value)
	})
}

// scalar decodes one word or number. It returns false after an error.
func (r *Reader) scalar(n Node, row Row) bool {
	if row.Bounded && n.Text() == unlimited {
		if !row.Unlimited {
			n.Failf("`%s`: cannot be unlimited", row.Name)
			return false
		}
		row.Value.SetInt(row.UnlimitedValue)
		return true
	}
	value, ok := row.Form.read(row.Name, n)
	if !ok {
		return false
	}
	if number, is := value.(int64); is && row.Bounded && (number < row.Min || number > row.Max) {
		n.Failf("`%s`: must be between %s and %s, got %s", row.Name, row.Form.Write(row.Min), row.Form.Write(row.Max), Shown(n.yaml.Value))
		return false
	}
	row.Value.Set(reflect.ValueOf(value).Convert(row.Value.Type()))
	return true
}
