package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// A Plot has a bar for each row.
type Plot struct {
	Title string
	Unit  string // of values
	Log   bool   // the axis of values is logarithmic
	Bars  []Bar

	file string
}

// A Bar is a value and its upper range; High 0 means none.
type Bar struct {
	Label       string
	Value, High float64
	Ours        bool
}

// Sizes of drawings, in pixels.
const (
	svgWidth = 860
	svgLeft  = 250 // for the labels of bars
	svgRight = 70
	svgTop   = 46
	svgBar   = 22
)

// svgStyle has colors for light and dark pages (prefers-color-scheme).
const svgStyle = `<style>
text{font:12px sans-serif;fill:#24292f}.t{font-size:14px;font-weight:bold}.s{fill:#57606a}
.g{stroke:#d0d7de;stroke-width:1}.b{fill:#8c959f}.o{fill:#0969da}.w{stroke:#24292f;stroke-width:1.5}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.g{stroke:#3d444d}.b{fill:#656c76}.o{fill:#4493f8}
.w{stroke:#e6edf3}}
</style>
`

// svg draws the plot.
func (p *Plot) svg() []byte {
	var b strings.Builder
	height := svgTop + svgBar*len(p.Bars) + 36
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
		svgWidth, height, escape(p.Title))
	b.WriteString(svgStyle)
	label(&b, 10, 18, "t", "start", p.Title)
	label(&b, 10, 35, "s", "start", p.Unit)
	p.bars(&b)
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func label(b *strings.Builder, x, y float64, class, anchor, text string) {
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y, class, anchor, escape(text))
}

func line(b *strings.Builder, class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

// An axis maps values to 0…1.
type axis struct {
	low, high float64
	log       bool
}

// newAxis returns an axis that covers values, which must be positive if it is logarithmic.
func newAxis(values []float64, log bool) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1), log: log}
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			continue
		}
		a.low, a.high = min(a.low, v), max(a.high, v)
	}
	switch {
	case a.low > a.high:
		a.low, a.high = 1, 10
	case log:
		a.low, a.high = math.Pow(10, math.Floor(math.Log10(a.low))), a.high*1.1
		if a.high <= a.low {
			a.high = a.low * 10
		}
	default:
		a.low, a.high = min(0, a.low), max(a.high*1.1, 1e-9)
	}
	return a
}

func (a axis) at(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	if a.log {
		v = max(v, a.low)
		return min(1, math.Log(v/a.low)/math.Log(a.high/a.low))
	}
	return max(0, min(1, (v-a.low)/(a.high-a.low)))
}

// ticks returns the values that are marked: powers of ten, or a few round numbers.
func (a axis) ticks() (values []float64) {
	if a.log {
		for v := a.low; v <= a.high; v *= 10 {
			for _, n := range []float64{1, 2, 5} {
				if n*v <= a.high {
					values = append(values, n*v)
				}
			}
		}
		return values
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high-a.low)))
	for (a.high-a.low)/step < 4 {
		step /= 2
	}
	for v := math.Ceil(a.low/step) * step; v <= a.high; v += step {
		values = append(values, v)
	}
	return values
}

func (p *Plot) bars(b *strings.Builder) {
	var values []float64
	for _, bar := range p.Bars {
		values = append(values, bar.Value, max(bar.High, bar.Value))
	}
	a := newAxis(values, p.Log)
	width := float64(svgWidth - svgLeft - svgRight)
	bottom := float64(svgTop + svgBar*len(p.Bars))
	for _, v := range a.ticks() {
		x := svgLeft + a.at(v)*width
		line(b, "g", x, svgTop, x, bottom)
		label(b, x, bottom+16, "s", "middle", short(v))
	}
	for i, bar := range p.Bars {
		y := float64(svgTop + svgBar*i)
		class, to := "b", a.at(bar.Value)*width
		if bar.Ours {
			class = "o"
		}
		label(b, svgLeft-8, y+15, "", "end", bar.Label)
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", class, svgLeft, y+3, max(to, 1), svgBar-6)
		end := to
		if bar.High > bar.Value {
			end = a.at(bar.High) * width
			line(b, "w", svgLeft+to, y+svgBar/2, svgLeft+end, y+svgBar/2)
		}
		label(b, svgLeft+end+6, y+15, "s", "start", number(bar.Value))
	}
}

// short formats a number without trailing zeros.
func short(v float64) string { return fmt.Sprintf("%.4g", v) }
