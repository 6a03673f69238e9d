package page

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corral/internal/gate"
)

// TestStreamEndsInTime: a stream ends within half a second after its visitor may see it no longer. That a token was revoked is noticed within
// another half: together that is the second that is promised.
func TestStreamEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stays atomic.Bool
		stays.Store(true)
		w := httptest.NewRecorder()
		st := &stream{
			w: w, control: http.NewResponseController(w), ctx: t.Context(), ticks: time.NewTicker(gate.CheckInterval), stays: stays.Load,
		}
		defer st.ticks.Stop()
		const after = 10*time.Second + time.Millisecond
		begun := time.Now()
		time.AfterFunc(after, func() { stays.Store(false) })
		if st.wait(nil) {
			t.Error("the stream goes on")
		}
		if took := time.Since(begun); took < after || took-after > 500*time.Millisecond {
			t.Errorf("it ended %v after it had to", took-after)
		}
	})
}
