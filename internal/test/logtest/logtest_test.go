package logtest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestMake(t *testing.T) {
	for _, kind := range Kinds() {
		l := Make(kind, 1, 200_000, 48)
		if again := Make(kind, 1, 200_000, 48); !bytes.Equal(l.Text, again.Text) {
			t.Errorf("%s is another one with the same seed", kind)
		}
		lines := strings.Split(string(l.Text), "\n")
		seen := map[string]bool{}
		for _, p := range l.Planted {
			if p.Number < 1 || p.Number > int64(len(lines)) || lines[p.Number-1] != p.Line || seen[p.Query] || !strings.Contains(p.Intent, p.Query) {
				t.Fatalf("%s: %+v", kind, p)
			}
			seen[p.Query] = true
			others, same := 0, 0
			for _, line := range lines {
				n := 0
				for w := range strings.FieldsSeq(p.Query) {
					if strings.Contains(line, w) {
						n++
					}
				}
				switch {
				case n == len(strings.Fields(p.Query)):
					same++
				case n > 0:
					others++
				}
			}
			if same != 1 || others < 5 {
				t.Errorf("%s: %q is in %d lines, and words of it in %d", kind, p.Query, same, others)
			}
		}
		if len(l.Planted) != 48 || len(l.Text) < 200_000 || len(l.Text) > 220_000 {
			t.Errorf("%s: %d planted in %d bytes", kind, len(l.Planted), len(l.Text))
		}
		noise, err := io.ReadAll(io.LimitReader(Noise(kind, 2), 100_000))
		if err != nil || len(noise) != 100_000 || bytes.Equal(noise[:5000], l.Text[:5000]) {
			t.Errorf("%s: noise of %d bytes, %v", kind, len(noise), err)
		}
	}
}

func TestReal(t *testing.T) {
	logs := Real()
	if len(logs) != 10 {
		t.Errorf("%d logs", len(logs))
	}
	for name, l := range logs {
		lines := strings.Split(string(l.Text), "\n")
		for _, p := range l.Planted {
			if lines[p.Number-1] != p.Line {
				t.Errorf("%s: line %d is not %q", name, p.Number, p.Line)
			}
		}
		later, err := io.ReadAll(l.WithoutPlanted())
		if len(l.Planted) != 10 || err != nil || bytes.Count(later, []byte("\n")) != len(lines)-1-10 {
			t.Errorf("%s: %d planted, %v", name, len(l.Planted), err)
		}
	}
}

func TestTypo(t *testing.T) {
	for seed := range uint64(200) {
		got := Typo("disk payment-gateway full", seed)
		if got == "disk payment-gateway full" || !strings.HasPrefix(got, "disk p") || !strings.HasSuffix(got, " full") {
			t.Errorf("%d: %q", seed, got)
		}
	}
}
