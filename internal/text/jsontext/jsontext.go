// Package jsontext writes values as JSON that is safe to show on a terminal. Programs that only escape text are not linked with
// encoding/json, as they would be if this were in package text.
package jsontext

import (
	"bytes"
	"encoding/json"
	"io"

	"corral/internal/text"
)

// Write writes a value as JSON: on one line if indent is empty, otherwise indented.
func Write(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	if err == nil {
		_, err = w.Write(text.JSON(b.Bytes()))
	}
	return err
}
