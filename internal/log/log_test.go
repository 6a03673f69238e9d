package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/test/sandboxtest"
)

type badError struct{ s string }

func (e *badError) Error() string { return e.s }

// TestValues: any value, given in any way, makes one line of bounded size that is printable.
func TestValues(t *testing.T) {
	for form, attr := range map[string]func(s string) any{
		"string": func(s string) any { return slog.String("value", s) },
		"error":  func(s string) any { return slog.Any("value", fmt.Errorf("open %s: %w", s, errors.New("refused"))) },
		"list":   func(s string) any { return slog.Any("value", []string{s, s}) },
		"struct": func(s string) any { return slog.Any("value", struct{ Path string }{s}) },
		"group":  func(s string) any { return slog.Group("group", "value", s) },
		"bytes":  func(s string) any { return slog.Any("value", []byte(s)) },
	} {
		for name, s := range sandboxtest.HostileText() {
			for _, plain := range []bool{true, false} {
				var b bytes.Buffer
				New(&b, slog.LevelInfo, plain).Info("job ended", attr(s))
				line, ended := strings.CutSuffix(b.String(), "\n")
				if !ended || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) {
					t.Errorf("%s of %s: %.300q", form, name, b.String())
				}
				if len(line) > 6*maxValue+200 {
					t.Errorf("%s of %s: a line of %d bytes", form, name, len(line))
				}
				if !plain && !json.Valid(b.Bytes()) {
					t.Errorf("%s of %s: no JSON: %.300q", form, name, b.String())
				}
			}
		}
	}
}

// TestMessage: a message is bounded and printable, too.
func TestMessage(t *testing.T) {
	for name, s := range sandboxtest.HostileText() {
		for _, plain := range []bool{true, false} {
			var b bytes.Buffer
			New(&b, slog.LevelInfo, plain).Warn(s)
			line := strings.TrimSuffix(b.String(), "\n")
			if len(line) > 6*maxValue+200 || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("%s: %.300q", name, line)
			}
		}
	}
}

// TestMeaning: escapes in JSON do not change the decoded value, and printable text is not escaped.
func TestMeaning(t *testing.T) {
	for value, want := range map[any]any{
		"/srv/\u202egnp.exe\u009b": "/srv/\u202egnp.exe\u009b", "päth 世界": "päth 世界", 7: 7.0, true: true,
		error((*badError)(nil)): "<nil>", error(&badError{"a\nb"}): "a\nb",
	} {
		var b bytes.Buffer
		New(&b, slog.LevelInfo, false).Info("x", "value", value)
		var line struct{ Value any }
		if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.Value != want {
			t.Errorf("%v: %v, %v", value, line.Value, err)
		}
	}
	var b bytes.Buffer
	New(&b, slog.LevelWarn, false).Info("x")
	if b.Len() > 0 {
		t.Errorf("below the level: %s", b.String())
	}
}
