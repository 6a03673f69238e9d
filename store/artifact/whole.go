package artifact

import "sync/atomic"

// A whole counts down the bytes up to which two streams are shown completely. A nil *whole counts nothing.
type whole struct {
	left atomic.Int64 // negative once the maximum was exceeded
	over func()
}

func (v View) whole() *whole {
	if v.Whole <= 0 {
		return nil
	}
	w := &whole{over: v.Over}
	w.left.Store(v.Whole)
	return w
}

// count subtracts n bytes written by the job.
func (w *whole) count(n int) {
	if w == nil {
		return
	}
	left := w.left.Add(-int64(n))
	if left < 0 && left+int64(n) >= 0 && w.over != nil {
		w.over()
	}
}

func (w *whole) isOver() bool { return w != nil && w.left.Load() < 0 }
