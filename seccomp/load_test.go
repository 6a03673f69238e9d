package seccomp

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkLoad measures seccomp(2) itself, which each job executes before it starts. Each load needs a new process
// that times the call, since a filter cannot be removed. ns/op is the median, which other load on the machine
// disturbs less than a mean. For some hundred processes: -benchtime=500x -count=6.
func BenchmarkLoad(b *testing.B) {
	for _, profile := range append(Profiles(), Scanner) {
		b.Run(profile, func(b *testing.B) {
			program := compile(b, profile, runtime.GOARCH)
			template := child(b, "load", "")
			var times []float64
			for b.Loop() {
				cmd := *template
				cmd.Stdin, cmd.Stderr = bytes.NewReader(program), os.Stderr
				out, err := cmd.Output()
				if err != nil {
					b.Fatal(err)
				}
				took, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, took)
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "ns/op")
			b.ReportMetric(float64(len(program)/instructionSize), "instructions")
		})
	}
}
