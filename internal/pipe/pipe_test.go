package pipe

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRead: all that a job has written is read, to the end or to the deadline, and only the end of the job blocks.
func TestRead(t *testing.T) {
	for _, size := range []int{0, 1, smallRead, growth * smallRead, Large} {
		for _, open := range []bool{false, true} {
			r, w, err := New(Reads)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			for f, want := range map[*os.File]bool{r: true, w: false} {
				Control(f, func(fd int) {
					if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 != want {
						t.Errorf("flags %#x, %v: non-blocking must be %t", flags, err, want)
					}
				})
			}
			enlarge(r)
			want := bytes.Repeat([]byte("x"), size)
			if _, err := w.Write(want); err != nil {
				t.Fatal(err)
			}
			if open {
				err = r.SetReadDeadline(time.Unix(1, 0))
			} else {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			if more := Read(r, func(p []byte) { got = append(got, p...) }); more != open || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, open %t: got %d bytes, more %t", size, open, len(got), more)
			}
		}
	}
}
