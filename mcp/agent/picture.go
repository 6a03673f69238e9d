package agent

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"corral/mcp/run"
	"corral/mcp/tool"
)

// Bounds of an image in a reply. Models accept no larger ones, and some clients end a conversation with one that is not valid.
const (
	maxImage = 3 << 20 // bytes
	maxSide  = 8000    // pixels
)

// formats are the formats of images that replies have: how they begin and end, and how their sizes are read. The content is not decoded,
// because a small file can be a large picture.
var formats = []struct {
	kind, begin, end string
	config           func(io.Reader) (image.Config, error)
}{
	{"image/png", "\x89PNG\r\n\x1a\n", "IEND\xae\x42\x60\x82", png.DecodeConfig},
	{"image/jpeg", "\xff\xd8\xff", "\xff\xd9", jpeg.DecodeConfig},
}

// picture returns the image that a process wrote to its standard output, and what the footer says about it, also if the image cannot be
// shown; about is "" for other output.
func (v *view) picture(s *run.State, stdout stream) (p *tool.Image, about string) {
	for _, f := range formats {
		if !strings.HasPrefix(stdout.c.Head, f.begin) || s.Running {
			continue
		}
		size := kilobytes(stdout.c.Size())
		if stdout.c.Size() > maxImage {
			return nil, fmt.Sprintf("%s, %s, not shown: the maximum is %s, make it smaller", f.kind, size, kilobytes(maxImage))
		}
		data := []byte(stdout.c.Head + stdout.c.Tail)
		if stdout.c.Between > 0 {
			var all bytes.Buffer
			if stdout.read == nil || stdout.read(&all) != nil {
				return nil, fmt.Sprintf("%s, %s, not shown: it was not stored", f.kind, size)
			}
			data = all.Bytes()
		}
		c, err := f.config(bytes.NewReader(data))
		switch {
		case err != nil || !bytes.HasSuffix(data, []byte(f.end)):
			return nil, fmt.Sprintf("%s, %s, not shown: it is damaged, or something follows it", f.kind, size)
		case max(c.Width, c.Height) > maxSide:
			return nil, fmt.Sprintf("%s, %d × %d pixels, not shown: the maximum is %d, make it smaller", f.kind, c.Width, c.Height, maxSide)
		}
		return &tool.Image{Type: f.kind, Data: data}, fmt.Sprintf("%s, %d × %d pixels, %s", f.kind, c.Width, c.Height, size)
	}
	return nil, ""
}
