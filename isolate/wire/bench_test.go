package wire

import (
	"fmt"
	"os"
	"testing"

	"corral/job"
)

// BenchmarkConn measures a message and its reply, without and with a job's descriptors.
func BenchmarkConn(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	for _, files := range [][]*os.File{nil, {null, null, null, null}} {
		b.Run(fmt.Sprintf("%d descriptors", len(files)), func(b *testing.B) {
			ours, theirs := connected(b)
			message := make([]byte, 160)
			b.ReportAllocs()
			for b.Loop() {
				if err := ours.Send(message, files...); err != nil {
					b.Fatal(err)
				}
				_, got, err := theirs.Receive()
				if err != nil {
					b.Fatal(err)
				}
				CloseAll(got)
			}
		})
	}
}

// BenchmarkPair measures the creation of the connection that each slot needs.
func BenchmarkPair(b *testing.B) {
	for _, most := range []int{256, MaxMessage} {
		b.Run(fmt.Sprint(most), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ours, theirs, err := PairFor(most)
				if err != nil {
					b.Fatal(err)
				}
				ours.Close()
				theirs.Close()
			}
		})
	}
}

// BenchmarkMessages measures encoding and decoding of a job's messages.
func BenchmarkMessages(b *testing.B) {
	run := Run{Repo: "/home/somebody/src/project", Dir: ".", Profile: "default", Tool: "run", Claim: job.Claim{Tool: "run"}}
	result := Result{Outcome: Exited, Wall: 1, Job: "job-1", Cgroup: "v2"}
	b.ReportAllocs()
	for b.Loop() {
		_, body, err := ReadHeader(run.Append(1))
		if err == nil {
			_, err = ReadRun(body)
		}
		if err != nil {
			b.Fatal(err)
		}
		if _, body, err = ReadHeader(result.Append(1)); err == nil {
			_, err = ReadResult(body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPayload measures writing the sealed file with a job's arguments and environment.
func BenchmarkPayload(b *testing.B) {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/job", "USER=job", "LANG=C.UTF-8", "TERM=dumb"}
	b.ReportAllocs()
	for b.Loop() {
		f, err := NewPayload([]string{"/bin/true"}, env)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
