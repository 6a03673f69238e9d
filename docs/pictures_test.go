package docs

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the drawings in docs/pictures")

// TestPictures compares the drawings in docs/pictures with what this file draws. With -update it writes them.
func TestPictures(t *testing.T) {
	for name, draw := range map[string]func() string{"view.svg": drawView, "request.svg": drawRequest} {
		file, want := filepath.Join("pictures", name), draw()
		if err := xml.Unmarshal([]byte(want), new(struct{})); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is out of date (%v). Run: go test ./docs -run TestPictures -update", file, err)
		}
	}
}

// style has a color for each class, for light and for dark pages.
const style = `text{font:13px sans-serif;fill:#24292f}.t{font-size:15px;font-weight:bold}.s{fill:#57606a;font-size:12px}.m{font:12px monospace}
.box{fill:#f6f8fa;stroke:#d0d7de;stroke-width:1}.jail{fill:#ddf4ff;stroke:#0969da;stroke-width:2}.root{fill:#fff1e5;stroke:#bc4c00;stroke-width:1}
.row{fill:#ffffff;stroke:#d0d7de}.yes{stroke:#1a7f37;stroke-width:2;fill:none}.no{stroke:#cf222e;stroke-width:2;fill:none}.yh{fill:#1a7f37}
.way{stroke:#24292f;stroke-width:1.5;fill:none}.wh{fill:#24292f}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.box{fill:#151b23;stroke:#3d444d}.jail{fill:#0c2d6b;stroke:#4493f8}
.root{fill:#3d1300;stroke:#f0883e}.row{fill:#0d1117;stroke:#3d444d}.yes{stroke:#3fb950}.no{stroke:#f85149}.yh{fill:#3fb950}
.way{stroke:#e6edf3}.wh{fill:#e6edf3}}`

// A drawing collects the elements of an SVG image. Coordinates are in pixels; texts are placed by their baseline.
type drawing struct{ strings.Builder }

func newDrawing(width, height int, title string) *drawing {
	d := &drawing{}
	fmt.Fprintf(&d.Builder, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n<style>\n%s\n</style>\n",
		width, height, escape(title), style)
	return d
}

func (d *drawing) end() string { return d.String() + "</svg>\n" }

func (d *drawing) box(class string, x, y, width, height int) {
	fmt.Fprintf(&d.Builder, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", class, x, y, width, height)
}

// text writes a text; anchor is start, middle or end.
func (d *drawing) text(class string, x, y int, anchor, text string) {
	fmt.Fprintf(&d.Builder, "<text class=\"%s\" x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", class, x, y, anchor, escape(text))
}

// arrow draws a line through points, given as x, y, x, y, …, with a head at the last.
func (d *drawing) arrow(class, head string, points ...int) {
	n := len(points)
	x, y, dx, dy := points[n-2], points[n-1], sign(points[n-2]-points[n-4]), sign(points[n-1]-points[n-3])
	var path strings.Builder
	for i := 0; i < n; i += 2 {
		fmt.Fprintf(&path, "%c%d %d", "ML"[min(i, 1)], points[i], points[i+1])
	}
	fmt.Fprintf(&d.Builder, "<path class=\"%s\" d=\"%s\"/>\n", class, path.String())
	fmt.Fprintf(&d.Builder, "<path class=\"%s\" d=\"M%d %dL%d %dL%d %dZ\"/>\n", head,
		x, y, x-9*dx+5*dy, y-9*dy+5*dx, x-9*dx-5*dy, y-9*dy-5*dx)
}

// stop draws a line from x to end that is crossed out there.
func (d *drawing) stop(x, y, end int) {
	fmt.Fprintf(&d.Builder, "<path class=\"no\" d=\"M%d %dL%d %dM%d %dL%d %dM%d %dL%d %d\"/>\n",
		x, y, end-6, y, end-6, y-6, end+6, y+6, end-6, y+6, end+6, y-6)
}

func sign(n int) int { return min(max(n, -1), 1) }

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails
	return b.String()
}

// drawView draws what a job sees of the host.
func drawView() string {
	const (
		left, leftWidth   = 10, 300
		right, rightWidth = 430, 420
		first, step       = 64, 44
	)
	d := newDrawing(860, 450, "What a job sees: of the host, the repository, the system's programs and a few files of /etc; all else is its own or absent")
	d.box("box", left, 10, leftWidth, 396)
	d.text("t", left+16, 36, "start", "Your machine")
	d.box("jail", right, 10, rightWidth, 396)
	d.text("t", right+16, 36, "start", "A job")
	rows := []struct{ path, host, job, view string }{
		{"/home/ada/app", "the repository", "/home/ada/app", "writable, or read-only, or a copy"},
		{"/usr /opt /bin /lib", "programs", "/usr /opt /bin /lib", "read-only"},
		{"/etc", "settings, accounts", "/etc", "a few files: certificates, time zone"},
		{"/home /root /srv …", "everybody's files", "/home /tmp /dev/shm", "empty, its own, in its memory"},
		{"/proc /sys /dev", "processes, devices", "/proc /dev", "its own processes, harmless devices"},
		{"network", "and sockets", "network", "its own loopback, nothing else"},
		{"users", "and their rights", "user job", "an unused id, no capability"},
		{"memory, processes", "of all", "limits", "by default 2 GiB, 512 processes"},
	}
	for i, r := range rows {
		y := first + i*step
		d.box("row", left+10, y-16, leftWidth-20, 34)
		d.text("m", left+20, y+5, "start", r.path)
		d.text("s", left+leftWidth-18, y+5, "end", r.host)
		d.box("row", right+10, y-16, rightWidth-20, 34)
		d.text("m", right+20, y+5, "start", r.job)
		d.text("s", right+rightWidth-18, y+5, "end", r.view)
		if i < 3 {
			d.arrow("yes", "yh", left+leftWidth-8, y+1, right+8, y+1)
		} else {
			d.stop(left+leftWidth-8, y+1, right)
		}
	}
	d.text("s", 430, 432, "middle",
		"namespaces, cgroup, system call filter, Landlock, no capabilities — and when the job ends, all of its processes are gone")
	return d.end()
}

// drawRequest draws how a request becomes a job, and its output a reply.
func drawRequest() string {
	d := newDrawing(860, 280, "The way of a request: agent host, corral-front, corrald, jail; the output returns past corrald")
	d.box("box", 10, 10, 140, 120)
	d.text("t", 80, 36, "middle", "Agent host")
	d.text("s", 80, 60, "middle", "Claude Code, Codex,")
	d.text("s", 80, 77, "middle", "Cursor, curl, …")

	d.box("box", 250, 10, 170, 120)
	d.text("t", 335, 36, "middle", "corral-front")
	d.text("s", 335, 60, "middle", "strict decoding")
	d.text("s", 335, 77, "middle", "policy: allow or deny")
	d.text("s", 335, 94, "middle", "limits")
	d.text("s", 335, 118, "middle", "runs as you, never as root")

	d.box("root", 510, 10, 150, 120)
	d.text("t", 585, 36, "middle", "corrald")
	d.text("s", 585, 60, "middle", "checks user, limits,")
	d.text("s", 585, 77, "middle", "repository")
	d.text("s", 585, 94, "middle", "makes the jail")
	d.text("s", 585, 118, "middle", "the only root")

	d.box("jail", 740, 10, 110, 200)
	d.text("t", 795, 36, "middle", "Jail")
	d.box("row", 755, 52, 80, 54)
	d.text("s", 795, 76, "middle", "process 1")
	d.text("s", 795, 93, "middle", "reaps, kills")
	d.box("row", 755, 140, 80, 54)
	d.text("t", 795, 173, "middle", "the job")
	d.arrow("way", "wh", 795, 106, 795, 140)

	d.arrow("way", "wh", 150, 50, 250, 50)
	d.text("s", 200, 42, "middle", "1 tool call")
	d.arrow("way", "wh", 420, 50, 510, 50)
	d.text("s", 465, 42, "middle", "2 Run, pipes")
	d.arrow("way", "wh", 660, 70, 740, 70)
	d.text("s", 700, 62, "middle", "3 plan")
	d.arrow("way", "wh", 585, 130, 585, 222)
	d.text("s", 594, 182, "start", "decided, finished")
	d.box("box", 510, 222, 150, 40)
	d.text("t", 585, 247, "middle", "audit log")

	d.arrow("yes", "yh", 755, 167, 400, 167, 400, 130)
	d.text("s", 480, 160, "middle", "4 output, past corrald")
	d.arrow("way", "wh", 335, 130, 335, 222)
	d.text("s", 326, 182, "end", "redacted, hashed")
	d.box("box", 250, 222, 170, 40)
	d.text("t", 335, 247, "middle", "artifacts, index")
	d.arrow("way", "wh", 250, 110, 150, 110)
	d.text("s", 200, 102, "middle", "5 reply")
	return d.end()
}
