package text

import (
	"bytes"
	"encoding/json"
	"io"
)

// WriteJSON writes a value as JSON that is safe to show on a terminal: on one line if indent is empty, otherwise indented.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	if err == nil {
		_, err = w.Write(JSON(b.Bytes()))
	}
	return err
}
