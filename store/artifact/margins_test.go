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
					m.write([]byte(rest[:k]), nil)
					rest = rest[k:]
				}
				head, tail, between := m.both(true)
				left := max(n-2*size, 0)
				if head != text[:min(n, size)] || tail != text[len(head)+left:] || between != int64(left) {
					t.Fatalf("%d of %d: %q, %d, %q", size, n, head, between, tail)
				}
			}
		}
	}
	var none *margins
	none.write([]byte("x"), nil)
	if head, tail, between := none.both(true); head != "" || tail != "" || between != 0 || newMargins(0) != nil {
		t.Error("nil margins kept something")
	}
}

// TestMarginsLive: all output of a running job is visible, without secrets.
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
		want := fmt.Sprintf("%d ready: [REDACTED:aws-key]\nmore", n)
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

// TestMarginsCharacters: what is shown of a stream begins and ends with whole characters, and counts the rest as left out.
func TestMarginsCharacters(t *testing.T) {
	m := newMargins(5)
	m.write([]byte("aé世")[:5], nil)
	if head, tail, between := m.both(false); head != "aé" || tail != "" || between != 0 {
		t.Errorf("being written: %q, %d, %q", head, between, tail)
	}
	m.write([]byte("\x96世世界é"), nil)
	head, tail, between := m.both(true)
	if head != "aé" || tail != "界é" || between != int64(len("世世世")) {
		t.Errorf("%q, %d, %q", head, between, tail)
	}
	m = newMargins(5)
	m.write([]byte("no"), []byte("w: "))
	if head, _, _ := m.both(false); head != "now: " {
		t.Errorf("with what is pending: %q", head)
	}
	m.write([]byte("w: x"), nil)
	if head, tail, _ := m.both(true); head+tail != "now: x" {
		t.Errorf("then: %q", head+tail)
	}
}

// TestAhead: those who follow a job see what is pending at once, and each byte once.
func TestAhead(t *testing.T) {
	var a ahead
	var seen string
	for _, step := range []struct{ out, pending, want string }{
		{"ready on port ", "30", "ready on port 30"},
		{"", "30", "ready on port 30"},
		{"3000\n", "", "ready on port 3000\n"},
		{"", "Password: ", "ready on port 3000\nPassword: "},
		{"Password: [REDACTED:secret]\n", "", "ready on port 3000\nPassword: [REDACTED:secret]\n"},
		{"", "ghp_", "ready on port 3000\nPassword: [REDACTED:secret]\nghp_"},
		{"[REDACTED:github-token]", "", "ready on port 3000\nPassword: [REDACTED:secret]\nghp_[REDACTED:github-token]"},
	} {
		if seen += string(a.next([]byte(step.out), []byte(step.pending))); seen != step.want {
			t.Fatalf("%q, want %q", seen, step.want)
		}
	}
}
