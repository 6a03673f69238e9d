package rpc

import (
	"bytes"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"corral/internal/strictjson"
)

// TestInPieces checks that texts inserted in pieces are those of the message encoded at once, whatever is in them and
// wherever they are divided, and that no piece is large.
func TestInPieces(t *testing.T) {
	type message struct {
		Name   string `json:"name"`
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
		Last   bool   `json:"last"`
	}
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"a", "\x00", "\n", `"`, `\`, "<", "é", "€", "😀", "\u2028", "\uFFFD", "\xff", "\x80", "\x80\x80\x80\x80\x80", "\xf0\x9f\x98", "\xe2\x82", "\xc3", "\xed\xa0\x80",
	}
	random := func(n int) []byte {
		var b []byte
		for len(b) < n {
			b = append(b, parts[r.IntN(len(parts))]...)
		}
		return b
	}
	for _, size := range []int{0, 1, 100, pieceSize - 1, pieceSize, pieceSize + 1, 5 * pieceSize} {
		for range 20 {
			stdout, stderr := random(size), random(size/2)
			name, more := `"stdout":""`, strings.Repeat("x", r.IntN(2))+"\n"
			want := strictjson.Encode(message{name, validText(stdout), validText(stderr) + more, true})
			pieces := slices.Collect(inPieces(strictjson.Encode(message{Name: name, Last: true}),
				named{name: "stdout", text: stdout}, named{name: "stderr", text: stderr, more: more}))
			if got := slices.Concat(pieces...); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: %.300q, want %.300q", size, got, want)
			}
			for _, p := range pieces {
				if len(p) > 6*pieceSize+1000 {
					t.Fatalf("a piece of %d bytes", len(p))
				}
			}
		}
	}
}

// A pieceConn notes the largest part of a message that it gets at once.
type pieceConn struct {
	*pipeConn
	mu      sync.Mutex
	largest int // guarded by mu
}

func (c *pieceConn) note(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.largest = max(c.largest, n)
}

func (c *pieceConn) Write(text []byte) error {
	c.note(len(text))
	return c.pipeConn.Write(text)
}

func (c *pieceConn) WritePieces(pieces iter.Seq[[]byte]) error {
	return c.pipeConn.WritePieces(func(yield func([]byte) bool) {
		pieces(func(p []byte) bool {
			c.note(len(p))
			return yield(p)
		})
	})
}

// TestLargeAnswer checks that an answer is not encoded as a whole: of output that JSON escapes, an answer takes six times as
// much as the output for which the budget of the server was reserved.
func TestLargeAnswer(t *testing.T) {
	w := &world{run: shell}
	conn := &pieceConn{pipeConn: newPipe()}
	ended := make(chan error, 1)
	go func() { ended <- w.server().Serve(t.Context(), conn, Caller{Principal: "user:ada"}) }()
	ask := func(text string) (answer struct {
		Result struct{ Stdout string }
	},
	) {
		conn.in <- []byte(text)
		if err := json.Unmarshal(<-conn.out, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	ask(`{"id":1,"method":"initialize","params":{"clientInfo":{"name":"t","version":"1"}}}`)
	const size = 4 << 20
	answer := ask(`{"id":2,"method":"command/exec","params":{"command":["write","4194304"],"disableOutputCap":true}}`)
	if len(answer.Result.Stdout) != size {
		t.Errorf("%d bytes", len(answer.Result.Stdout))
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.largest > 256<<10 {
		t.Errorf("%d bytes are written at once", conn.largest)
	}
	close(conn.in)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
