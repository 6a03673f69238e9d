package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 101)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, 0.5, 0},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 3, 2, 1}, 0.5, 3},
		{hundred, 0.5, 50},
		{hundred, 0.95, 95},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.q, c.values, got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the values were sorted in place")
	}
}

// TestAgainst: a ratio is the median of the ratios of rounds, not the ratio of medians.
func TestAgainst(t *testing.T) {
	ms := time.Millisecond
	bare := &Row{times: []time.Duration{1 * ms, 10 * ms, 2 * ms}}
	row := &Row{times: []time.Duration{3 * ms, 20 * ms, 20 * ms, 9 * ms}} // a round that bare did not have
	f := row.against(bare)
	if f.n != 3 || f.ratio != 3 || f.added != 10 || f.median != 20 || f.p95Ratio != 2 {
		t.Errorf("%+v", f)
	}
	if f := (&Row{}).against(bare); f != (figures{}) {
		t.Errorf("of no times: %+v", f)
	}
}

// TestMeasure: a row that fails is taken out with its reason, the others have every round, and bare must not fail.
func TestMeasure(t *testing.T) {
	good, runs := func() error { return nil }, 0
	bare, other := &Row{Name: "bare", Run: good}, &Row{Name: "other", Run: good}
	breaks := &Row{Name: "breaks", Run: func() error {
		if runs++; runs > 8 {
			return errors.New("it\nbroke")
		}
		return nil
	}}
	missing := &Row{Name: "missing", Missing: "not there"}
	if err := measure(t.Context(), &options{}, []*Row{bare, breaks, missing, other}, 10, pace{2, 0}); err != nil {
		t.Fatal(err)
	}
	if len(bare.times) != 20 || len(other.times) != 20 || breaks.times != nil || breaks.Missing != "it broke" {
		t.Errorf("%d, %d, %v, %q", len(bare.times), len(other.times), breaks.times, breaks.Missing)
	}
	bare.Run = func() error { return io.ErrUnexpectedEOF }
	if err := measure(t.Context(), &options{}, []*Row{bare}, 1, pace{1, 0}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 1.234: "1.23", -0.5: "-0.50", 12.34: "12.3", 123.4: "123"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if signed(1) != "+1.00" || signed(-1) != "-1.00" {
		t.Error(signed(1), signed(-1))
	}
}

// TestSVG: a drawing is well-formed XML without NaN, whatever its values and labels are.
func TestSVG(t *testing.T) {
	for name, p := range map[string]*Plot{
		"nothing":    {Title: "empty"},
		"bars":       {Title: `<&"> ]]>`, Log: true, Bars: []Bar{{Label: "a<b", Value: 0.3, High: 900}, {Label: "b", Value: 30, Ours: true}}},
		"zero bars":  {Log: true, Bars: []Bar{{Value: 0}, {Value: -1}}},
		"equal bars": {Bars: []Bar{{Value: 5}, {Value: 5}}},
		"no number":  {Bars: []Bar{{Value: math.NaN()}, {Value: math.Inf(1)}, {Value: 1}}},
	} {
		text := string(p.svg())
		d := xml.NewDecoder(strings.NewReader(text))
		var err error
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(text, `"NaN`) || strings.Contains(text, "Inf\"") {
			t.Errorf("%s: a coordinate is not a number:\n%s", name, text)
		}
	}
}

// TestAxis: what is larger lies further, and ticks lie on the axis.
func TestAxis(t *testing.T) {
	for _, log := range []bool{false, true} {
		a := newAxis([]float64{0.5, 700}, log)
		if a.at(0.5) >= a.at(20) || a.at(20) >= a.at(700) || a.at(700) > 1 || a.at(0.5) < 0 {
			t.Errorf("log %v: %v %v %v", log, a.at(0.5), a.at(20), a.at(700))
		}
		ticks := a.ticks()
		if len(ticks) < 4 || len(ticks) > 20 {
			t.Errorf("log %v: ticks %v", log, ticks)
		}
		for _, v := range ticks {
			if v < a.low || v > a.high {
				t.Errorf("log %v: tick %v outside of %+v", log, v, a)
			}
		}
	}
}

func TestBetween(t *testing.T) {
	const page = "# Title\n\n" + pageBegin + "\nold\n" + pageEnd + "\n\nend\n"
	got, err := between(page, "\nnew\n")
	if want := "# Title\n\n" + pageBegin + "\n\nnew\n\n" + pageEnd + "\n\nend\n"; err != nil || got != want {
		t.Errorf("%v:\n%s", err, got)
	}
	again, err := between(got, "\nnew\n")
	if err != nil || again != got {
		t.Errorf("a second time: %v:\n%s", err, again)
	}
	for _, broken := range []string{"", pageBegin + "\n", pageEnd + "\n" + pageBegin + "\n", page + page} {
		if got, err := between(broken, "x"); err == nil {
			t.Errorf("%q gave %q", broken, got)
		}
	}
}

// TestMarkdown: what a peer said cannot end a cell or begin an element, and every row has as many cells as the head.
func TestMarkdown(t *testing.T) {
	r := &Result{Title: "T", Date: "today", Machine: "m", Columns: []string{"row", "why"}, Plots: []*Plot{{Title: "P", file: "p.svg"}}}
	r.add("a|b", "it <b>said</b> `x`\nand more")
	var w strings.Builder
	r.markdown(&w, false)
	if want := "| a\\|b | it &lt;b>said&lt;/b> 'x' and more |\n"; !strings.Contains(w.String(), want) {
		t.Errorf("%q is not in\n%s", want, w.String())
	}
	if !strings.Contains(w.String(), "![P](p.svg)") {
		t.Error(w.String())
	}
	for column, want := range map[string]string{setsUp: "\n| row |\n|---|\n| a\\|b |\n", medianOf: "m.\n\n![P]"} {
		r.Columns[1] = column
		w.Reset()
		if r.markdown(&w, true); !strings.Contains(w.String(), want) {
			t.Errorf("described: %q is not in\n%s", want, w.String())
		}
	}
}

// TestKeep: a result is read as it was written; one that was never kept is none.
func TestKeep(t *testing.T) {
	o := &options{results: t.TempDir()}
	r := &Result{Key: "k", Title: "T", Columns: []string{"a"}, Rows: [][]string{{"1"}}, Plots: []*Plot{{Bars: []Bar{{Label: "x", Value: 1}}}}}
	if err := o.keep(r); err != nil {
		t.Fatal(err)
	}
	got, err := o.kept("k")
	if err != nil || got.Rows[0][0] != "1" || got.Plots[0].Bars[0].Value != 1 {
		t.Errorf("%v, %+v", err, got)
	}
	if got, err := o.kept("none"); err != nil || got != nil {
		t.Errorf("%v, %+v", err, got)
	}
}
