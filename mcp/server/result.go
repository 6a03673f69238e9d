package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/strictjson"
	"corral/mcp/tool"
)

// A resultTail holds the members of a tools/call result after content and structuredContent.
type resultTail struct {
	IsError bool           `json:"isError,omitempty"`
	Type    sdk.ResultType `json:"resultType,omitempty"` // since 2026-07-28
	Meta    map[string]any `json:"_meta,omitempty"`      // since 2026-07-28
}

// tail returns the members that the protocol version of a call adds to its result.
func (s *Server) tail(m *message) resultTail {
	if !m.modern() {
		return resultTail{}
	}
	return resultTail{Type: sdk.ResultTypeComplete, Meta: map[string]any{sdk.MetaKeyServerInfo: s.identity}}
}

// encodeResult encodes the tool's result in at most maxMessage bytes.
func (k *call) encodeResult(tail resultTail) []byte {
	structured, err := structuredOf(k.result.Structured)
	if err != nil {
		k.fail("%v", err)
		structured = strictjson.Encode(k.result.Structured)
	}
	data := k.write(structured, tail)
	if len(data) <= tool.MaxMessage {
		return data
	}
	size := tool.MaxMessage - (len(data) - len(structured))
	if structured = shrink(structured, size); structured == nil {
		k.fail("the result has %d bytes, the maximum of a message is %d", len(data), tool.MaxMessage)
		structured = strictjson.Encode(k.result.Structured)
	}
	return k.write(structured, tail)
}

// write encodes the response. It copies structured only once, because results may be large and many.
func (k *call) write(structured json.RawMessage, tail resultTail) []byte {
	tail.IsError = k.result.IsError
	said := k.result.Text
	if !k.result.Whole {
		said = textOf(structured, said)
	}
	text, rest := strictjson.Encode(said), strictjson.Encode(tail)
	parts := [][]byte{
		dialect.Response(k.id), []byte(`{"content":[{"type":"text","text":`), text, []byte(`}`),
	}
	if i := k.result.Image; i != nil {
		parts = append(parts, []byte(`,`), strictjson.Encode(sdk.NewImageContent(base64.StdEncoding.EncodeToString(i.Data), i.Type)))
	}
	parts = append(parts, []byte(`]`))
	if structured != nil {
		parts = append(parts, []byte(`,"structuredContent":`), structured)
	}
	if len(rest) > len("{}") {
		parts = append(parts, []byte{','}, rest[1:len(rest)-1])
	}
	return bytes.Join(append(parts, []byte(`}}`)), nil)
}

// fail replaces the call's result with an INTERNAL error.
func (k *call) fail(format string, values ...any) {
	k.code = tool.CodeInternal
	k.result = tool.Result{Structured: &tool.Error{Code: tool.CodeInternal, Message: fmt.Sprintf(format, values...)}, IsError: true}
}

// structuredOf encodes structuredContent, which must be an object. It returns nil for nil.
func structuredOf(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, ok := v.(json.RawMessage)
	// Line breaks would split the message on stdio.
	if raw = bytes.TrimSpace(raw); !ok || !json.Valid(raw) || bytes.ContainsAny(raw, "\r\n") {
		var err error
		if raw, err = strictjson.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode the result: %w", err)
		}
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("the result is not a JSON object")
	}
	return raw, nil
}

// textOf returns the text block: structured if it is short, else given, else the short members of structured.
func textOf(structured json.RawMessage, given string) string {
	switch {
	case structured != nil && len(structured) <= tool.MaxText:
		return string(structured)
	case structured != nil && given == "":
		given = short(structured)
	}
	return tool.CutText(given, tool.MaxText)
}

// short returns an object without its long members, whose names it lists.
func short(structured json.RawMessage) string {
	var b strings.Builder
	var left []string
	b.WriteByte('{')
	for _, e := range strictjson.Entries(structured) {
		switch {
		case len(e.Value) > tool.MaxShort || b.Len() > tool.MaxText/2:
			left = append(left, tool.Clip(e.Key))
		default:
			fmt.Fprintf(&b, "%s:%s,", strictjson.Encode(e.Key), e.Value)
		}
	}
	if len(left) > 20 {
		left = append(left[:20], "…")
	}
	fmt.Fprintf(&b, `"truncated":%s}`, strictjson.Encode("only structuredContent has: "+strings.Join(left, ", ")))
	return b.String()
}

// shrink cuts the longest strings of a result, each with a mark, until it has at most size bytes. It returns nil if that is
// impossible because the result has too many values.
func shrink(structured json.RawMessage, size int) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(structured))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil
	}
	for n := tool.MaxMessage / 2; n >= tool.MaxShort; n /= 2 {
		v = cutTexts(v, n)
		if raw, err := strictjson.Marshal(v); err == nil && len(raw) <= size {
			return raw
		}
	}
	return nil
}

// cutTexts cuts each string in v to n bytes, in place.
func cutTexts(v any, n int) any {
	switch v := v.(type) {
	case string:
		return tool.CutText(v, n)
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
