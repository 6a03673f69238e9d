package strict

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Form is how a value is written as one word or number.
type Form struct {
	What  string   // completes "must be …" in errors
	Tags  []string // accepted YAML types, such as "!!int"; nil is a text that is not empty
	Words []string // all accepted texts; nil accepts what Parse does
	Noun  string   // what one of Words is called in errors; "" is its key
	// Parse returns the value of a text, of the type of the field or convertible to it. The tag is the text's YAML type. An
	// error is reported as What, unless it is a Mistake.
	Parse func(s, tag string) (any, error)
	// Write returns the text that Parse reads, quoted as YAML requires.
	Write func(v any) string
}

// A Mistake is an error of Form.Parse that is reported in its own words, and without the value.
type Mistake string

// Error returns the words.
func (m Mistake) Error() string { return string(m) }

// Number returns a form of integers, for which minimum and maximum apply.
func Number(what string, tags []string, parse func(s string) (int64, error), write func(n int64) string) Form {
	return Form{
		What: what, Tags: tags,
		Parse: func(s, _ string) (any, error) { return parse(s) },
		Write: func(v any) string { return write(v.(int64)) },
	}
}

// Text returns a form of the texts that valid accepts; nil accepts all.
func Text(what string, valid func(s string) bool) Form {
	return Form{
		What: what,
		Parse: func(s, _ string) (any, error) {
			if valid != nil && !valid(s) {
				return nil, fmt.Errorf("must be %s", what)
			}
			return s, nil
		},
		Write: func(v any) string { return Quote(v.(string)) },
	}
}

// Words returns a form of the given texts. noun is what one is called in errors, "" is its key.
func Words(noun string, words ...string) Form {
	f := Text("one of "+strings.Join(words, ", "), nil)
	f.Noun, f.Words = noun, words
	return f
}

// flag is the form of booleans. YAML 1.1's yes and no are texts for the library, and refused.
var flag = Form{
	What: "true or false", Tags: []string{"!!bool"},
	Parse: func(s, _ string) (any, error) { return strings.EqualFold(s, "true"), nil },
	Write: func(v any) string { return strconv.FormatBool(v.(bool)) },
}

// read returns the value of n, which is that of a key called name. ok is false after an error, which it records.
func (f Form) read(name string, n Node) (value any, ok bool) {
	tags := f.Tags
	if tags == nil {
		tags = []string{"!!str"}
	}
	if !n.scalar(tags...) || f.Tags == nil && n.yaml.Value == "" {
		n.mustBe(name, f.What)
		return nil, false
	}
	value, err := f.Parse(n.yaml.Value, n.yaml.ShortTag())
	noun := f.Noun
	if noun == "" {
		noun = name
	}
	var mistake Mistake
	switch {
	case errors.As(err, &mistake):
		n.Failf("`%s`: %s", Shown(name), string(mistake))
	case f.Words != nil && !slices.Contains(f.Words, n.yaml.Value):
		n.Unknown(noun, n.yaml.Value, f.Words)
	case err != nil:
		n.mustBe(name, f.What)
	default:
		return value, true
	}
	return nil, false
}

// Quote writes a text as YAML's double-quoted form, which has Go's escapes, unless it is plainly text: a word or a path.
func Quote(s string) string {
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s == "" || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	// A word that begins with a digit, a dot or a dash could be a number; true, null and the like are words of YAML's.
	first := strings.ContainsRune(letters+"/", rune(s[0]))
	if first && strings.Trim(s, letters+"/.-0123456789") == "" && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

// yamlWords are not texts in YAML 1.1 or 1.2.
var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
