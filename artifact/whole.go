package artifact

import "sync/atomic"

// A whole is what is left of the bytes that two streams may have to be shown as they are. The nil whole counts nothing.
type whole struct {
	left atomic.Int64 // below zero when there was too much
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

// count is for n bytes of the job's.
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
