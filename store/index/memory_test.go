package index

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// bigText returns a generated stream of size bytes: a log, or one line.
func bigText(kind string, size int) io.Reader {
	line := 0
	var rest []byte
	return io.LimitReader(readerFunc(func(p []byte) (int, error) {
		if len(rest) == 0 {
			line++
			rest = fmt.Appendf(nil, "2026-01-02T03:04:05.%03dZ ERROR [module_%d] req=%08x connection to host%d refused after %d ms ",
				line%1000, line%300, line*2654435761, line, line%977)
			if kind == "log" {
				rest[len(rest)-1] = '\n'
			}
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	}), int64(size))
}

// measureAdd adds a stream, and prints by how many KiB the process's peak memory grew.
func measureAdd() int {
	dir, err := os.Open(os.Getenv("INDEX_TEST_DIR"))
	if err != nil {
		return report(err)
	}
	x, err := Open(dir, Options{})
	if err != nil {
		return report(err)
	}
	ctx := context.Background()
	if _, err := x.Add(ctx, testBase, Source{Label: "first"}, strings.NewReader("one line\n")); err != nil {
		return report(err)
	}
	before, err := peak()
	if err != nil {
		return report(err)
	}
	kind, size := "", 0
	if _, err := fmt.Sscan(os.Getenv("INDEX_TEST_MEMORY"), &kind, &size); err != nil {
		return report(err)
	}
	if _, err := x.Add(ctx, testBase, Source{Label: "big"}, bigText(kind, size)); err != nil {
		return report(err)
	}
	after, err := peak()
	if err != nil {
		return report(err)
	}
	fmt.Println(after - before)
	return report(x.Close())
}

// peak returns the peak resident memory of this process in KiB.
func peak() (n int, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(rest, &n)
	return n, err
}

// TestMemory checks that an Add needs at most 64 MiB for any stream.
func TestMemory(t *testing.T) {
	for kind, size := range map[string]int{"log": 16_000_000, "line": 48_000_000} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("INDEX_TEST_MEMORY", fmt.Sprint(kind, " ", size/RaceScale))
			c := startAdder(t, t.TempDir(), "", nil)
			var grown int
			if _, err := fmt.Sscan(c.next(t), &grown); err != nil {
				t.Fatal(err)
			}
			c.end(t)
			t.Logf("grown by %d KiB", grown)
			if grown > 64<<10 {
				t.Errorf("memory grew by %d KiB", grown)
			}
		})
	}
}
