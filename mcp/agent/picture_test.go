package agent

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
)

// picture returns an image in a format, of random points.
func picture(t *testing.T, format string, width, height int) string {
	t.Helper()
	i, from := image.NewRGBA(image.Rect(0, 0, width, height)), rand.New(rand.NewPCG(1, 2))
	for n := range width * min(height, 300) {
		i.Set(n%width, n/width, color.RGBA{uint8(from.Uint32()), uint8(from.Uint32()), uint8(from.Uint32()), 255})
	}
	var b bytes.Buffer
	err := png.Encode(&b, i)
	if format == "jpeg" {
		b.Reset()
		err = jpeg.Encode(&b, i, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPicture: a reply to a process that wrote an image has it as one. What a client could not show is named instead.
func TestPicture(t *testing.T) {
	small, photo, large := picture(t, "png", 3, 2), picture(t, "jpeg", 30, 20), picture(t, "png", 400, 300)
	const kept = 2 * (128 << 10)
	if len(large) <= kept || len(large) > maxImage {
		t.Fatalf("%d bytes are in memory, or beyond the maximum", len(large))
	}
	for _, tt := range []struct{ name, stdout, kind, about string }{
		{"png", small, "image/png", fmt.Sprintf("image/png, 3 × 2 pixels, %d bytes", len(small))},
		{"jpeg", photo, "image/jpeg", "image/jpeg, 30 × 20 pixels, "},
		{"not in memory", large, "image/png", "image/png, 400 × 300 pixels, "},
		{"cut off", small[:len(small)-1], "", "not shown: it is damaged"},
		{"a part of a jpeg", photo[:100], "", "not shown: it is damaged"},
		{"its beginning", small[:8], "", "not shown: it is damaged"},
		{"text follows", small + "done\n", "", "not shown: it is damaged, or something follows it"},
		{"too many bytes", small + strings.Repeat("x", maxImage), "", "not shown: the maximum is 3.1 MB"},
		{"too many pixels", picture(t, "png", 1, maxSide+1), "", "1 × 8001 pixels, not shown: the maximum is 8000"},
		{"text", "PNG\n", "", ""},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout, f.Stderr = tt.stdout, "warned"
		hold := make(chan struct{})
		f.During = func(context.Context) { <-hold }
		x := newSuite(t, f)
		x.queue = backgroundTime / 10
		running := call(t, &Run{x}, `{"code":"x","background":true}`)
		if running.Image != nil {
			t.Errorf("%s: an image of a job that runs", tt.name)
		}
		close(hold)
		for name, r := range map[string]tool.Result{
			"run": call(t, &Run{x}, `{"code":"x"}`), "wait": call(t, &Job{x}, `{"action":"wait"}`), "tail": call(t, &Job{x}, `{"action":"tail"}`),
		} {
			switch {
			case !strings.Contains(r.Text, "[stderr] warned\n") || !strings.Contains(r.Text, tt.about) || len(r.Text) > 300:
				t.Errorf("%s, %s: %.500q", tt.name, name, r.Text)
			case (r.Image == nil) != (tt.kind == ""):
				t.Errorf("%s, %s: image %t", tt.name, name, r.Image != nil)
			case r.Image != nil && (r.Image.Type != tt.kind || string(r.Image.Data) != tt.stdout):
				t.Errorf("%s, %s: another image: %s, %d bytes", tt.name, name, r.Image.Type, len(r.Image.Data))
			}
		}
	}
}
