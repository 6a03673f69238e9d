package forward

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"corral/front/forward/status"
	"corral/internal/test/sandboxtest"
)

// TestHostileStream: a receiver that does not read, resets, talks or ends at once neither holds up the audit log nor costs a record:
// when a good one is in its place, all arrive.
func TestHostileStream(t *testing.T) {
	for name, hostile := range map[string]func(net.Conn){
		"never reads": func(c net.Conn) {
			_ = c.(*net.TCPConn).SetReadBuffer(1)
			<-t.Context().Done()
		},
		"resets": func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 1000))
			_ = c.(*net.TCPConn).SetLinger(0)
		},
		"ends": func(net.Conn) {},
		"talks": func(c net.Conn) {
			_, _ = io.Copy(c, strings.NewReader("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = io.Copy(io.Discard, c)
		},
		"floods": func(c net.Conn) { _, _ = io.Copy(c, zeros{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, got := newSite(t), &pile{}
			l := listen(t, "tcp", "127.0.0.1:0")
			var good atomic.Bool
			accept(t, l, func(c net.Conn) {
				if good.Load() {
					got.readFrames(t, c)
					return
				}
				hostile(c)
			})
			s.jobs(3000) // more than the buffers of a connection
			// What is sent twice is no fault here.
			s.start("tcp://"+l.Addr().String(), func(o *Options) { o.Patience = sandboxtest.Slow(300 * time.Millisecond) })
			s.reaches("attempts fail", func(now status.Status) bool { return now.Failures >= 3 })
			s.jobs(10) // the audit log does not wait
			good.Store(true)
			now := s.sent()
			last := s.last()
			sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), "the receiver has read all", func() bool { return len(got.list()) >= int(last-now.Sent) })
			if now.Dropped != 0 {
				t.Errorf("%+v", now)
			}
			if name != "never reads" { // what its kernel took counts as received
				sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), "the last record", func() bool {
					all, _ := seqs(t, got.list())
					return len(all) > 0 && all[len(all)-1] == last
				})
			}
		})
	}
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWrongName: nothing is sent to a receiver whose certificate is for another name, or from an authority that is not trusted.
func TestWrongName(t *testing.T) {
	certificate, trust := authority(t)
	var read atomic.Int64
	l := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	accept(t, l, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		read.Add(n)
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for to, c := range map[string]*tls.Config{"tls://localhost:" + port: trust, "tls://127.0.0.1:" + port: nil} {
		s := newSite(t)
		s.jobs(1)
		stop := s.start(to, func(o *Options) { o.TLS = c })
		now := s.reaches("attempts fail", func(now status.Status) bool { return now.Failures >= 2 })
		stop()
		if now.Sent != 0 || read.Load() != 0 || !strings.Contains(s.said.String(), "certificate") {
			t.Errorf("%s: %+v, %d bytes\n%s", to, now, read.Load(), s.said.String())
		}
	}
}

// A collectorSite is an OTLP collector of the test.
type collectorSite struct {
	*httptest.Server
	pile
	records []*logspb.LogRecord // guarded by pile.mu
	bodies  atomic.Int64
}

// newCollectorSite starts a collector. answer says what it does with a batch; records that it returns true for are kept.
func newCollectorSite(t *testing.T, answer func(n int64, w http.ResponseWriter, list []*logspb.LogRecord) bool) *collectorSite {
	t.Helper()
	c := &collectorSite{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data logspb.LogsData
		if err != nil || r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &data) != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			return
		}
		list := data.ResourceLogs[0].ScopeLogs[0].LogRecords
		if answer != nil && !answer(c.bodies.Add(1), w, list) {
			return
		}
		for _, r := range list {
			c.add(r.Body.GetStringValue())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.records = append(c.records, list...)
	}))
	t.Cleanup(c.Close)
	return c
}

// TestCollector: an OTLP collector gets every record, with the trace of its request.
func TestCollector(t *testing.T) {
	c, s := newCollectorSite(t, nil), newSite(t)
	s.jobs(300)
	s.start(c.URL)
	s.sent()
	c.complete(t, s.last(), false)
	r := c.records[0]
	if fmt.Sprintf("%x", r.TraceId) != trace || r.EventName != "corral.audit.decided" || r.SeverityNumber != 9 || r.TimeUnixNano == 0 || len(r.Attributes) != 3 {
		t.Errorf("%v", r)
	}
}

// TestCollectorAnswers: what a collector answers decides whether records are sent again or dropped, and dropped ones are counted and
// have a notice.
func TestCollectorAnswers(t *testing.T) {
	has := func(list []*logspb.LogRecord, seq string) bool {
		for _, r := range list {
			if r.Attributes[0].Value.GetStringValue() == seq && r.EventName != "corral.audit.gap" {
				return true
			}
		}
		return false
	}
	status503 := func(code int, head ...string) func(int64, http.ResponseWriter, []*logspb.LogRecord) bool {
		return func(n int64, w http.ResponseWriter, _ []*logspb.LogRecord) bool {
			if n > 2 {
				return true
			}
			for i := 0; i+1 < len(head); i += 2 {
				w.Header().Set(head[i], head[i+1])
			}
			w.WriteHeader(code)
			return false
		}
	}
	for _, tt := range []struct {
		name     string
		answer   func(int64, http.ResponseWriter, []*logspb.LogRecord) bool
		dropped  uint64
		failures uint64
		notice   string
	}{
		{"busy", status503(503, "Retry-After", "1"), 0, 2, ""},
		{"a token that expired", status503(401), 0, 2, ""},
		{"another path", status503(404), 0, 2, ""},
		{"a redirect", status503(307, "Location", "http://127.0.0.1:1/"), 0, 2, ""},
		{"one record is unacceptable", func(_ int64, w http.ResponseWriter, list []*logspb.LogRecord) bool {
			if has(list, "7") {
				w.WriteHeader(400)
				return false
			}
			return true
		}, 1, 0, `{"event":"gap","from":7,"to":7,"count":1,"reason":"not accepted by the receiver"}`},
		{"too large", func(_ int64, w http.ResponseWriter, list []*logspb.LogRecord) bool {
			if len(list) > 1 {
				w.WriteHeader(413)
				return false
			}
			return true
		}, 0, 0, ""},
		{"a part is rejected", func(_ int64, w http.ResponseWriter, list []*logspb.LogRecord) bool {
			w.Header().Set("Content-Type", "application/x-protobuf")
			if has(list, "1") {
				_, _ = w.Write([]byte{0x0a, 0x02, 0x08, 0x03}) // partial_success.rejected_log_records: 3
			}
			return true
		}, 3, 0, `"count":3,"reason":"not accepted by the receiver"}`},
		{"everything is rejected", func(_ int64, w http.ResponseWriter, _ []*logspb.LogRecord) bool {
			w.WriteHeader(400)
			return false
		}, 10, 0, ""},
		{"no protobuf", func(_ int64, w http.ResponseWriter, _ []*logspb.LogRecord) bool {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(bytes.Repeat([]byte{0xff}, 100))
			return true
		}, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, s := newCollectorSite(t, tt.answer), newSite(t)
			s.jobs(5)
			s.start(c.URL)
			now := s.sent()
			if now.Dropped != tt.dropped || now.Failures != tt.failures || now.Pending != 0 {
				t.Errorf("%+v\n%s", now, s.said.String())
			}
			_, notices := seqs(t, c.list())
			if got := strings.Join(notices, " "); !strings.Contains(got, tt.notice) || tt.notice == "" && got != "" {
				t.Errorf("notices %s, want %s", got, tt.notice)
			}
		})
	}
}

// TestEndlessAnswer: an answer of a gigabyte is not read.
func TestEndlessAnswer(t *testing.T) {
	var written atomic.Int64
	c := newCollectorSite(t, func(n int64, w http.ResponseWriter, _ []*logspb.LogRecord) bool {
		if n > 2 {
			return true
		}
		w.WriteHeader(500)
		m, _ := io.CopyN(w, zeros{}, 1<<30)
		written.Add(m)
		return false
	})
	s := newSite(t)
	s.jobs(5)
	s.start(c.URL)
	if now := s.sent(); now.Failures != 2 || now.Dropped != 0 {
		t.Errorf("%+v", now)
	}
	c.Close()
	if n := written.Load(); n >= 256<<20 {
		t.Errorf("%d bytes of answers were taken", n)
	}
	c.complete(t, s.last(), true)
}

// TestGaps: records that were removed before they were sent, or replaced by others, have a notice and are counted; another audit log
// in the place of the one that was forwarded is sent from its beginning.
func TestGaps(t *testing.T) {
	c, s := newCollectorSite(t, nil), newSite(t)
	s.jobs(1)
	stop := s.start(c.URL)
	s.sent()
	stop()
	s.jobs(60)
	names, err := filepath.Glob(filepath.Join(s.dir, "audit", "*.jsonl"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	damage(t, names[3], 2)
	for _, name := range names[:2] {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	stop = s.start(c.URL)
	now := s.sent()
	stop()
	all, notices := seqs(t, c.list())
	first := strings.TrimLeft(strings.TrimSuffix(filepath.Base(names[2]), ".jsonl"), "0")
	if len(notices) != 2 || !strings.HasPrefix(notices[0], `{"event":"gap","from":3,"to":`) || !strings.Contains(notices[1], `"count":1,`) ||
		fmt.Sprint(all[2]) != first || now.Dropped != all[2]-3+1 {
		t.Errorf("%+v, records %v…, notices %q", now, all[:4], notices)
	}
	_ = s.log.Close() // it would write into the directory while that is removed
	if err := os.RemoveAll(filepath.Join(s.dir, "audit")); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.jobs(2)
	before := len(c.list())
	s.start(c.URL)
	s.sent()
	if all, _ := seqs(t, c.list()[before:]); len(all) != 4 || all[0] != 1 || !strings.Contains(s.said.String(), "not the one that was forwarded") {
		t.Errorf("of the other audit log: %v\n%s", all, s.said.String())
	}
}

// damage makes a line of a file one that is no record.
func damage(t *testing.T, name string, line int) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	lines[line] = append(bytes.Repeat([]byte("\x1b"), len(lines[line])-1), '\n')
	if err := os.WriteFile(name, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}
