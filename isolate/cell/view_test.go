package cell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestRefuseLayer: a client is refused with the reason if its layer is full or damaged; other errors are the supervisor's.
func TestRefuseLayer(t *testing.T) {
	for _, tt := range []struct {
		err           error
		step, message string // of the refusal; "" for none
	}{
		{unix.ENOSPC, "limits", "the layer is too small"},
		{unix.EBADMSG, "session", "the layer is damaged: the session's layer: mkdir upper: bad message"},
		{unix.EUCLEAN, "session", "the layer is damaged"},
		{unix.EIO, "session", "the layer is damaged"},
		{unix.EPERM, "", ""},
		{io.ErrUnexpectedEOF, "", ""},
	} {
		err := fmt.Errorf("the session's layer: %w", &os.PathError{Op: "mkdir", Path: "upper", Err: tt.err})
		got := refuseLayer(err)
		refusal := (*job.Refusal)(nil)
		if !errors.As(got, &refusal) {
			if tt.step != "" || !errors.Is(got, tt.err) {
				t.Errorf("%v: %v", tt.err, got)
			}
			continue
		}
		if refusal.Step != tt.step || !strings.Contains(refusal.Message, tt.message) || refusal.Hint == "" || tt.step == "" {
			t.Errorf("%v: %+v", tt.err, refusal)
		}
	}
}
