package audit

import (
	"fmt"
	"testing"

	"corral/job"
)

// BenchmarkJob measures what auditing adds to a job: the records before and after it.
func BenchmarkJob(b *testing.B) {
	for _, logs := range []int{1, 2} {
		b.Run(fmt.Sprintf("supervisors=%d", logs), func(b *testing.B) {
			dir := newDir(b)
			var all []*Log
			for range logs {
				all = append(all, open(b, dir, options(b)))
			}
			who := Who{Instance: "main", Job: "job-1", Peer: 1000}
			claim := job.Claim{
				Tool: "runtime_execute", Principal: "user:ada", Session: "0123456789abcdef", Request: "0123456789abcdef0123456789abcdef",
				Repo: "api", Runtime: "python", Decision: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l := all[i%logs]
				of, err := l.Decided(&Decision{Who: who, Repo: "/srv/repo", Profile: "default", Limits: job.Defaults(), Claim: claim})
				if err == nil {
					err = l.Finished(&Ending{Who: who, Of: of, Result: job.Result{Status: job.Success, Cgroup: "hybrid"}})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen measures what auditing adds to the start of a supervisor, which waits for the disk at its end.
func BenchmarkOpen(b *testing.B) {
	dir := newDir(b)
	l := open(b, dir, options(b))
	write(b, l, 1000)
	for b.Loop() {
		l, err := Open(dir, options(b))
		if err == nil {
			_, err = l.Recover(func(string) bool { return true })
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkVerify verifies an audit log of two thousand records.
func BenchmarkVerify(b *testing.B) {
	dir := newDir(b)
	l := open(b, dir, options(b))
	write(b, l, 1000)
	b.SetBytes(l.at.Size)
	for b.Loop() {
		verify(b, dir)
	}
}
