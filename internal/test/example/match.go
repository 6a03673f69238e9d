package example

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Any stands for text that a page omits.
const Any = "…"

// A Matcher compares the examples of one page with actual results. It is for a single goroutine.
type Matcher struct {
	varies []string          // keys whose values differ from run to run
	real   map[string]string // actual texts, by the text on the page
}

// NewMatcher returns a Matcher for which the values of these keys differ from run to run. A number there matches any
// number, or null. A text matches any text and must then have the same value everywhere, unless it contains Any. A time in
// UTC matches any such time, everywhere.
func NewMatcher(varies ...string) *Matcher {
	return &Matcher{varies: varies, real: map[string]string{}}
}

// Learn sets the actual text for a text on the page.
func (m *Matcher) Learn(page, real string) { m.real[page] = real }

// Actual returns a text of the page with all learned texts replaced.
func (m *Matcher) Actual(text string) string {
	pages := slices.Sorted(maps.Keys(m.real))
	slices.Reverse(pages) // of two with a common prefix, the longer one comes first
	var pairs []string
	for _, page := range pages {
		pairs = append(pairs, page, m.real[page])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// Text compares texts, ignoring trailing newlines.
func (m *Matcher) Text(page, got string) error {
	want := strings.TrimRight(m.Actual(page), "\n")
	if got = strings.TrimRight(got, "\n"); !fits(want, got) {
		return fmt.Errorf("the page has\n%s\ngot\n%s", want, got)
	}
	return nil
}

// times matches times as programs write them (RFC 3339, in UTC). All of them are equal to a Matcher.
func times() *regexp.Regexp { return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`) }

// fits reports whether got equals want, in which Any matches any text.
func fits(want, got string) bool {
	want, got = times().ReplaceAllString(want, "TIME"), times().ReplaceAllString(got, "TIME")
	pieces := strings.Split(want, Any)
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(pieces) == 1 {
		return want == got
	}
	rest, ok := strings.CutPrefix(got, first)
	if !ok {
		return false
	}
	for _, piece := range pieces[1 : len(pieces)-1] {
		_, after, found := strings.Cut(rest, piece)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}

// JSON compares values: all keys, and numbers by their text.
func (m *Matcher) JSON(page, got string) error {
	want, err := decode(page)
	if err != nil {
		return fmt.Errorf("the page's JSON: %w", err)
	}
	have, err := decode(got)
	if err != nil {
		return fmt.Errorf("the result's JSON: %w\n%s", err, got)
	}
	if err := m.value("", "", want, have); err != nil {
		return fmt.Errorf("%w\nin %s", err, got)
	}
	return nil
}

func decode(text string) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more data after the value")
	}
	return v, nil
}

// value compares one value; key is the last key of its place.
func (m *Matcher) value(place, key string, want, got any) error {
	differs := fmt.Errorf("%s: the page has %s, got %s", place, encode(want), encode(got))
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differs
		}
		return m.object(place, w, g)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return differs
		}
		return m.list(place, key, w, g)
	case string:
		g, ok := got.(string)
		if !ok || !m.text(key, w, g) {
			return differs
		}
	case json.Number:
		g, ok := got.(json.Number)
		if slices.Contains(m.varies, key) && (ok || got == nil) {
			return nil
		}
		if g != w {
			return differs
		}
	default: // true, false, null
		if _, ok := got.(json.Number); want == nil && ok && slices.Contains(m.varies, key) {
			return nil
		}
		if want != got {
			return differs
		}
	}
	return nil
}

func (m *Matcher) object(place string, want, got map[string]any) error {
	var errs []error
	_, more := want[Any]
	for key, w := range want {
		g, ok := got[key]
		switch {
		case key == Any:
		case !ok:
			errs = append(errs, fmt.Errorf("%s.%s: missing in the result", place, key))
		default:
			errs = append(errs, m.value(place+"."+key, key, w, g))
		}
	}
	for key, g := range got {
		_, ok := want[key]
		if _, number := g.(json.Number); number && slices.Contains(m.varies, key) {
			continue // another result leaves it out because it is 0
		}
		if !ok && !more {
			errs = append(errs, fmt.Errorf("%s.%s: missing on the page", place, key))
		}
	}
	return errors.Join(errs...)
}

func (m *Matcher) list(place, key string, want, got []any) error {
	if n := len(want) - 1; n >= 0 && want[n] == Any && len(got) >= n {
		want, got = want[:n], got[:n]
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: the page has %d elements, got %d", place, len(want), len(got))
	}
	var errs []error
	for n := range want {
		errs = append(errs, m.value(fmt.Sprintf("%s[%d]", place, n), key, want[n], got[n]))
	}
	return errors.Join(errs...)
}

// text compares texts, and learns those that differ from run to run.
func (m *Matcher) text(key, want, got string) bool {
	switch {
	case !slices.Contains(m.varies, key) || want == "" || got == "":
	case strings.Contains(want, Any): // incomplete, so it cannot be learned
		return true
	case m.real[want] == "":
		m.Learn(want, got)
		return true
	}
	return fits(m.Actual(want), got)
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
