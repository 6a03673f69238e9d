package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Write returns the struct that into points to as YAML, from which Decode reads the same. A zero value without a default, a nil
// list and an empty mapping are left out.
func (l Language) Write(into any) string {
	w := writer{language: l}
	rows, _ := l.Rows(reflect.ValueOf(into).Elem())
	return strings.Join(w.mapping(rows), "\n") + "\n"
}

// A writer writes YAML in blocks. Its methods return lines without newlines.
type writer struct{ language Language }

func (w writer) mapping(rows []Row) (lines []string) {
	for _, row := range rows {
		if row.Value.IsZero() && row.Tag.Get("default") == "" {
			continue
		}
		head, tail, nested := strings.Cut(row.Name, ".")
		if nested {
			row.Name = tail
			lines = append(lines, head+":")
			lines = append(lines, indented(w.row(row))...)
			continue
		}
		lines = append(lines, w.row(row)...)
	}
	return lines
}

// row returns a key with its value, nothing for an empty mapping.
func (w writer) row(row Row) []string {
	v := row.Value
	if row.optional() {
		row.Value = v.Elem()
		if lines := w.row(row); len(lines) > 0 {
			return lines
		}
		return []string{row.Name + ": {}"}
	}
	switch rows, ok := w.language.Rows(v); {
	case ok && row.Form.Parse == nil:
		return section(row.Name, w.mapping(rows))
	case v.Kind() == reflect.Map:
		return section(row.Name, w.entries(row))
	case v.Kind() == reflect.Slice && row.Form.Parse == nil:
		var lines []string
		for i := range v.Len() {
			rows, _ := w.language.Rows(v.Index(i))
			item := indented(w.mapping(rows))
			if len(item) > 0 {
				item[0] = "- " + item[0][2:]
			}
			lines = append(lines, item...)
		}
		if v.Len() == 0 {
			return []string{row.Name + ": []"} // nil is left out
		}
		return section(row.Name, lines)
	case v.Kind() == reflect.Slice:
		words := make([]string, v.Len())
		for i := range words {
			words[i] = w.scalar(row, v.Index(i))
		}
		return []string{fmt.Sprintf("%s: [%s]", row.Name, strings.Join(words, ", "))}
	case v.Kind() == reflect.Pointer:
		v = v.Elem()
	}
	return []string{row.Name + ": " + w.scalar(row, v)}
}

// entries writes a map. A name whose mapping is empty stays: a profile without settings is one.
func (w writer) entries(row Row) (lines []string) {
	keys := row.Value.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		one := row
		one.Name, one.Value = Quote(key.String()), reflect.New(row.Value.Type().Elem()).Elem()
		one.Value.Set(row.Value.MapIndex(key))
		entry := w.row(one)
		if len(entry) == 0 {
			entry = []string{one.Name + ": {}"}
		}
		lines = append(lines, entry...)
	}
	return lines
}

func (w writer) scalar(row Row, v reflect.Value) string {
	if row.Unlimited && v.Int() == row.UnlimitedValue {
		return unlimited
	}
	if row.Bounded {
		return row.Form.Write(v.Convert(reflect.TypeFor[int64]()).Interface())
	}
	if v.Kind() == reflect.String {
		return row.Form.Write(v.String())
	}
	return row.Form.Write(v.Interface())
}

func section(name string, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{name + ":"}, indented(lines)...)
}

func indented(lines []string) []string {
	for i, line := range lines {
		lines[i] = "  " + line
	}
	return lines
}
