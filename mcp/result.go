package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/strictjson"

	safe "corral/internal/text"
)

const (
	// maxMessage is how many bytes of JSON one outgoing message has at most. The official TypeScript client drops the
	// connection above 10 MiB.
	maxMessage = 9 << 20
	// maxShort is how many bytes of JSON a member of a result has to be left out of the short form of its text.
	maxShort = 512
)

// A resultTail is what a result of tools/call has after its content and its structuredContent.
type resultTail struct {
	IsError bool           `json:"isError,omitempty"`
	Type    sdk.ResultType `json:"resultType,omitempty"`
	Meta    *sdk.Meta      `json:"_meta,omitempty"`
}

// encodeResult writes the tool's result, within maxMessage. decorated is mcp-go's empty one, with what it adds for
// clients of 2026-07-28; nil is none.
func (k *call) encodeResult(decorated any) []byte {
	structured, err := structuredOf(k.result.Structured)
	if err != nil {
		k.fail("%v", err)
		structured = jsonOf(k.result.Structured)
	}
	var tail resultTail
	switch r := decorated.(type) {
	case *sdk.CallToolResult:
		tail.Type, tail.Meta = r.ResultType, r.Meta
	case sdk.CallToolResult:
		tail.Type, tail.Meta = r.ResultType, r.Meta
	}
	data := k.write(structured, tail)
	if len(data) <= maxMessage {
		return data
	}
	size := maxMessage - (len(data) - len(structured))
	if structured = shrink(structured, size); structured == nil {
		k.fail("the result has %d bytes, more than the %d that a message may have", len(data), maxMessage)
		structured = jsonOf(k.result.Structured)
	}
	return k.write(structured, tail)
}

// write copies structured once: it may be large, and there may be many.
func (k *call) write(structured json.RawMessage, tail resultTail) []byte {
	tail.IsError = k.result.IsError
	said := k.result.Text
	if !k.result.Whole {
		said = textOf(structured, said)
	}
	text, rest := jsonOf(said), jsonOf(tail)
	parts := [][]byte{
		[]byte(`{"jsonrpc":"2.0","id":`), k.id, []byte(`,"result":{"content":[{"type":"text","text":`), text, []byte(`}]`),
	}
	if structured != nil {
		parts = append(parts, []byte(`,"structuredContent":`), structured)
	}
	if len(rest) > len("{}") {
		parts = append(parts, []byte{','}, rest[1:len(rest)-1])
	}
	return bytes.Join(append(parts, []byte(`}}`)), nil)
}

// fail makes the call's result an error of ours.
func (k *call) fail(format string, values ...any) {
	k.code = CodeInternal
	k.result = ToolResult{Structured: &Error{Code: CodeInternal, Message: fmt.Sprintf(format, values...)}, IsError: true}
}

// structuredOf encodes structuredContent; nil is none.
func structuredOf(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, ok := v.(json.RawMessage)
	if raw = bytes.TrimSpace(raw); !ok || !json.Valid(raw) || bytes.ContainsAny(raw, "\r\n") { // a message is one line
		var err error
		if raw, err = marshal(v); err != nil {
			return nil, fmt.Errorf("encode the result: %w", err)
		}
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("the result is no object")
	}
	return raw, nil
}

// textOf is the text block: the JSON itself as long as it is short, else what the tool gave for that case, else the
// small members of it.
func textOf(structured json.RawMessage, given string) string {
	switch {
	case structured != nil && len(structured) <= maxText:
		return string(structured)
	case structured != nil && given == "":
		given = short(structured)
	}
	return cutText(given, maxText)
}

// short is an object without its large members, which it names.
func short(structured json.RawMessage) string {
	var b strings.Builder
	var left []string
	b.WriteByte('{')
	for _, e := range strictjson.Entries(structured) {
		switch {
		case len(e.Value) > maxShort || b.Len() > maxText/2:
			left = append(left, shown(e.Key))
		default:
			fmt.Fprintf(&b, "%s:%s,", jsonOf(e.Key), e.Value)
		}
	}
	if len(left) > 20 {
		left = append(left[:20], "…")
	}
	fmt.Fprintf(&b, `"truncated":%s}`, jsonOf("only structuredContent has: "+strings.Join(left, ", ")))
	return b.String()
}

// cutText cuts a text to n bytes or a little more, and marks it.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head := safe.Head(s, n)
	return fmt.Sprintf("%s… (+%d) [truncated]", head, utf8.RuneCountInString(s[len(head):]))
}

// shrink cuts the longest texts of a result until it has at most size bytes, each with a mark. It returns nil when the
// result is large by the number of its values.
func shrink(structured json.RawMessage, size int) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(structured))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil
	}
	for n := maxMessage / 2; n >= maxShort; n /= 2 {
		v = cutTexts(v, n)
		if raw, err := marshal(v); err == nil && len(raw) <= size {
			return raw
		}
	}
	return nil
}

// cutTexts cuts each text in v, which it changes.
func cutTexts(v any, n int) any {
	switch v := v.(type) {
	case string:
		return cutText(v, n)
	case []any:
		for i := range v {
			v[i] = cutTexts(v[i], n)
		}
	case map[string]any:
		for key := range v {
			v[key] = cutTexts(v[key], n)
		}
	}
	return v
}
