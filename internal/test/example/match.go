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

// Any stands for what a page does not show.
const Any = "…"

// A Matcher compares what pages show with what came. It is for one page, and for one goroutine.
type Matcher struct {
	varies []string          // keys whose values differ from run to run
	real   map[string]string // by what the page has for it
}

// NewMatcher returns one that knows that the values of these keys differ from run to run. A number there may be any
// number, or null; a text is any text, and the same one wherever the page has the same, unless it has Any in it. A time in
// UTC is any such time, wherever it is.
func NewMatcher(varies ...string) *Matcher {
	return &Matcher{varies: varies, real: map[string]string{}}
}

// Learn says what a text of the page stands for.
func (m *Matcher) Learn(page, real string) { m.real[page] = real }

// Actual returns a text of the page with what was learned in its place.
func (m *Matcher) Actual(text string) string {
	pages := slices.Sorted(maps.Keys(m.real))
	slices.Reverse(pages) // the longer of two that begin alike comes first
	var pairs []string
	for _, page := range pages {
		pairs = append(pairs, page, m.real[page])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// Text compares texts; newlines at their ends do not count.
func (m *Matcher) Text(page, got string) error {
	want := strings.TrimRight(m.Actual(page), "\n")
	if got = strings.TrimRight(got, "\n"); !fits(want, got) {
		return fmt.Errorf("the page has\n%s\nbut it is\n%s", want, got)
	}
	return nil
}

// times are those that programs write (RFC 3339, in UTC). Another one is as good.
func times() *regexp.Regexp { return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`) }

// fits reports whether got is want, in which Any is anything.
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

// JSON compares values: all keys, and numbers as they are written.
func (m *Matcher) JSON(page, got string) error {
	want, err := decode(page)
	if err != nil {
		return fmt.Errorf("the page's JSON: %w", err)
	}
	have, err := decode(got)
	if err != nil {
		return fmt.Errorf("what came: %w\n%s", err, got)
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
		return nil, errors.New("there is something after the value")
	}
	return v, nil
}

// value compares one value; key is the last name of its place.
func (m *Matcher) value(place, key string, want, got any) error {
	differs := fmt.Errorf("%s: the page has %s, it is %s", place, encode(want), encode(got))
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
			errs = append(errs, fmt.Errorf("%s.%s: it is not there", place, key))
		default:
			errs = append(errs, m.value(place+"."+key, key, w, g))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok && !more {
			errs = append(errs, fmt.Errorf("%s.%s: the page does not have it", place, key))
		}
	}
	return errors.Join(errs...)
}

func (m *Matcher) list(place, key string, want, got []any) error {
	if n := len(want) - 1; n >= 0 && want[n] == Any && len(got) >= n {
		want, got = want[:n], got[:n]
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: the page has %d elements, there are %d", place, len(want), len(got))
	}
	var errs []error
	for n := range want {
		errs = append(errs, m.value(fmt.Sprintf("%s[%d]", place, n), key, want[n], got[n]))
	}
	return errors.Join(errs...)
}

// text compares texts, and learns what one stands for that differs from run to run.
func (m *Matcher) text(key, want, got string) bool {
	switch {
	case !slices.Contains(m.varies, key) || want == "" || got == "":
	case strings.Contains(want, Any): // it is not all there, and so stands for nothing later
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
