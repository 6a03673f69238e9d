package index

import (
	"bytes"
	"fmt"
	"testing"
)

func BenchmarkSplit(b *testing.B) {
	var log, doc bytes.Buffer
	doc.WriteString("[")
	for i := 0; log.Len() < 16<<20; i++ {
		fmt.Fprintf(&log, "2026-11-21T10:%02d:%02d.%06dZ INFO  service_%d request handled path=/api/v1/items/%d status=200 took=%dms\n", i/60%60, i%60, i, i%17, i*7919, i%251)
		fmt.Fprintf(&doc, `{"id":%d,"name":"service_%d","ok":true,"list":[1,2,3],"message":"request handled without trouble"},`, i, i%17)
	}
	for _, c := range []struct {
		name  string
		in    []byte
		terms bool
	}{{"log", log.Bytes(), false}, {"log+terms", log.Bytes(), true}, {"json", doc.Bytes(), false}, {"oneline", bytes.ReplaceAll(log.Bytes(), []byte("\n"), []byte(" ")), false}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.in)))
			b.ReportAllocs()
			for b.Loop() {
				o := splitOptions{}
				if c.terms {
					o.Terms = newTopTerms()
				}
				if _, err := splitChunks(bytes.NewReader(c.in), o, func(chunk) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
