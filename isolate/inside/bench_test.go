package inside

import (
	"os"
	"testing"

	"corral/internal/test/sandboxtest"
)

// BenchmarkJob measures the time from sending the plan until the report that the job's last process is gone. The slot is
// prepared before. The program is the stub itself under another name, as which it reads its standard input to the end:
// hardly any program starts faster.
func BenchmarkJob(b *testing.B) {
	program, err := os.Open(sandboxtest.Bin(b, "corral-stub"))
	if err != nil {
		b.Fatal(err)
	}
	defer program.Close()
	p := plan()
	p.ExecFD = true
	message, args := p.Append(), payload(b, "hold")
	for b.Loop() {
		b.StopTimer()
		s := waiting(b)
		r, w := pipe(b)
		b.StartTimer()
		s.send(message, args, w, w, program)
		if got := s.report(); got != (Report{Kind: Gone}) {
			b.Fatalf("%+v", got)
		}
		b.StopTimer()
		r.Close()
		w.Close()
		s.hangUp()
		_ = s.cmd.Wait()
		b.StartTimer()
	}
}
