package inside

import (
	"os"
	"testing"

	"corral/internal/sandboxtest"
)

// BenchmarkJob: from the plan to the word that the last process of the job is gone. The slot is made before. The program is
// the stub by another name, as which it reads to the end of its standard input: hardly one starts faster.
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
