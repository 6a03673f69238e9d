package strict

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A Row is one key of a mapping. It is made from a field of a struct and its tags:
//
//	yaml       the key; "a.b" is the key b in a mapping a, which has no other key
//	form       the name of a Form; without it, the field's type has that name
//	words      in place of form: the accepted texts, separated by spaces
//	min, max   the accepted range of a number, as its form writes it
//	unlimited  the word "unlimited" is accepted, and stands for this number
//	default    the value without the key, as its form writes it; of a list, its one entry
//	implied    likewise, where the code that uses the field knows it, and the zero value stands for it
//	list       "some": the list must have an entry; "repeats": an entry may be there more than once
//	names      the forms of a map's keys, one for each level, separated by spaces
//	scope      "supervisor": the key is refused in a user's file
//	without    for people: what holds without the key, if that is not one value
//	example    for people: a value, where there is no default
type Row struct {
	Name string
	Form Form
	Tag  reflect.StructTag

	Bounded  bool // whether Min and Max apply
	Min, Max int64

	Unlimited      bool // whether the word "unlimited" is accepted
	UnlimitedValue int64

	Value reflect.Value // of the field, addressable
}

// optional returns whether the row is a mapping that may be absent: without keys it is another value than nil.
func (r Row) optional() bool {
	t := r.Value.Type()
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && r.Form.Parse == nil
}

// unlimited lifts a limit that can be lifted.
const unlimited = "unlimited"

// A Language is what a program's files are written in, beyond what the types of fields say.
type Language struct {
	Forms map[string]Form // by the name in a form tag, or the name of a type
	// Mappings are types whose rows do not come from tags. Each function gets a pointer to a value.
	Mappings map[reflect.Type]func(into any) []Row
	// Supervisor is the error for a key of scope supervisor in a user's file, after the key.
	Supervisor string
}

// SetDefaults sets the fields of the struct that into points to for which a tag has a default. It panics if a tag is wrong.
func (l Language) SetDefaults(into any) { l.setDefaults(reflect.ValueOf(into).Elem()) }

func (l Language) setDefaults(into reflect.Value) {
	rows, _ := l.Rows(into)
	for _, row := range rows {
		s, said := row.Tag.Lookup("default")
		if !said {
			if row.Form.Parse == nil {
				l.setDefaults(row.Value)
			}
			continue
		}
		if s == unlimited && row.Unlimited {
			row.Value.SetInt(row.UnlimitedValue)
			continue
		}
		value, err := row.Form.Parse(s, "")
		if err != nil {
			panic(fmt.Sprintf("%s: default:%q: %v", row.Name, s, err))
		}
		if row.Value.Kind() == reflect.Slice {
			row.Value.Set(reflect.Append(row.Value, reflect.ValueOf(value)))
			continue
		}
		row.Value.Set(reflect.ValueOf(value).Convert(row.Value.Type()))
	}
}

// Rows returns the rows of the struct that into points to, in the order of the fields, those of embedded structs included. ok
// is false if it is not a mapping. It panics if a tag is wrong.
func (l Language) Rows(into reflect.Value) (rows []Row, ok bool) {
	if of := l.Mappings[into.Type()]; of != nil {
		return of(into.Addr().Interface()), true
	}
	if into.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range into.NumField() {
		field := into.Type().Field(i)
		if field.Anonymous {
			more, _ := l.Rows(into.Field(i))
			rows = append(rows, more...)
		} else if name := field.Tag.Get("yaml"); name != "" {
			rows = append(rows, l.row(name, field, into.Field(i)))
		}
	}
	return rows, true
}

func (l Language) row(name string, field reflect.StructField, value reflect.Value) Row {
	r := Row{Name: name, Tag: field.Tag, Value: value}
	r.Form = l.form(field)
	number := func(tag string) (n int64, ok bool) {
		if s, said := field.Tag.Lookup(tag); said {
			v, err := r.Form.Parse(s, "")
			if n, ok = v.(int64); err != nil || !ok {
				panic(fmt.Sprintf("%s: %s:%q: %v", name, tag, s, err))
			}
		}
		return n, ok
	}
	r.Min, r.Bounded = number("min")
	r.Max, _ = number("max")
	if s, said := field.Tag.Lookup(unlimited); said {
		value, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("%s: unlimited:%q: %v", name, s, err))
		}
		r.Unlimited, r.UnlimitedValue = true, value
	}
	return r
}

// form returns the form of a field, or of what a field of several holds; the zero Form for a mapping.
func (l Language) form(field reflect.StructField) Form {
	if words := field.Tag.Get("words"); words != "" {
		return Words("", strings.Fields(words)...)
	}
	t := field.Type
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	name := field.Tag.Get("form")
	if name == "" && t.Kind() == reflect.Bool {
		return flag
	}
	if name == "" {
		name = t.String()
	}
	f, known := l.Forms[name]
	if !known && t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("field %s: no form %q", field.Name, name))
	}
	return f
}
