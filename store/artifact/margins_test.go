package artifact

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestMargins: the beginning and the end of a stream are kept, however it is split.
func TestMargins(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 7, 64} {
		for _, n := range []int{0, 1, size - 1, size, size + 1, 2*size - 1, 2 * size, 2*size + 1, 3 * size, 10*size + 3} {
			text := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", n/36+1)[:n]
			for try := range 20 {
				m := newMargins(size)
				for rest := text; rest != ""; {
					k := min(len(rest), random.IntN(3*size)+1)
					if try == 0 {
						k = len(rest)
					}
					m.write([]byte(rest[:k]))
					rest = rest[k:]
				}
				head, tail, between := m.both()
				left := max(n-2*size, 0)
				if head != text[:min(n, size)] || tail != text[len(head)+left:] || between != int64(left) {
					t.Fatalf("%d of %d: %q, %d, %q", size, n, head, between, tail)
				}
			}
		}
	}
	var none *margins
	none.write([]byte("x"))
	if head, tail, between := none.both(); head != "" || tail != "" || between != 0 || newMargins(0) != nil {
		t.Error("nil margins kept something")
	}
}

// TestMarginsLive: the output of a running job is visible up to the end of its last line, without secrets.
func TestMarginsLive(t *testing.T) {
	begin := mine()
	begin.View = View{Ends: 100}
	out := openStore(t, t.TempDir(), Options{}).Begin(begin)
	if c := out.Margins(Stdout); c != (StreamCapture{}) {
		t.Errorf("before Streams: %+v", c)
	}
	stdout, stderr, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Discard()
	write := func(to io.Writer, text string) {
		if _, err := io.WriteString(to, text); err != nil {
			t.Error(err)
		}
	}
	for n, w := range []io.Writer{stdout, stderr} {
		write(w, fmt.Sprintf("%d ready: %s\nmore", n, akia))
	}
	for n, stream := range []string{Stdout, Stderr} {
		want := fmt.Sprintf("%d ready: [REDACTED:aws-key]\nmo", n)
		sandboxtest.Eventually(t, 10*time.Second, stream, func() bool {
			c := out.Margins(stream)
			return c.Head == want && c.Tail == "" && c.Between == 0 && c.Bytes == int64(len("0 ready: ")+len(akia)+len("\nmore"))
		})
	}
	write(stdout, "\n")
	sandboxtest.Eventually(t, 10*time.Second, "the complete line", func() bool { return strings.HasSuffix(out.Margins(Stdout).Head, "\nmore\n") })
	write(stdout, strings.Repeat("x", 1000)+"end")
	stdout.Close()
	stderr.Close()
	out.Finish(&job.Record{Request: &job.Request{}, Status: job.Success})
	c := out.Captured().Stdout
	if len(c.Head) != 100 || len(c.Tail) != 100 || !strings.HasSuffix(c.Tail, "xend") || c.Between != int64(len("0 ready: [REDACTED:aws-key]\nmore\n")+1003-200) {
		t.Errorf("got %+v", c)
	}
	if again := out.Margins(Stdout); again.Tail != c.Tail {
		t.Errorf("after Finish: %+v", again)
	}
}
