package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

var accessExample = Access{json.RawMessage(`{"allow":[{"host":"example.org"}]}`), []Secret{{"acme", "Authorization", "Bearer {}", "s", true}}}

var openExample = Open{
	Door: 7, Name: "job 1", Request: "0af7651916cd43dd8448eb211c80319c", Access: accessExample, Ask: "go example.org:443", Placeholder: "corral-0123456789abcdef0",
	Authority: &Authority{[]byte{1}, []byte{2}},
}

// codecs decode a message of each kind and encode it again.
var codecs = map[string]func(message []byte) ([]byte, error){
	"open":   again(ReadOpen, AppendOpen),
	"update": again(ReadUpdate, AppendUpdate),
	"report": again(ReadReport, AppendReport),
	"close":  again(ReadClose, AppendClose),
	"names":  again(ReadNames, AppendNames),
	"reply": again(ReadReply, func(to []byte, r Reply) ([]byte, error) {
		return AppendReply(to, r), nil
	}),
}

func again[T any](read func([]byte) (T, error), write func([]byte, T) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(message []byte) ([]byte, error) {
		m, err := read(message)
		if err != nil {
			return nil, err
		}
		return write(nil, m)
	}
}

// examples returns one message of each kind.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	list := map[string][]byte{"reply": AppendReply(nil, Reply{KindOpened, 1 << 40, "no"})}
	var err [5]error
	list["open"], err[0] = AppendOpen(nil, openExample)
	list["update"], err[1] = AppendUpdate(nil, Update{7, accessExample})
	list["report"], err[2] = AppendReport(nil, Report{7})
	list["close"], err[3] = AppendClose(nil, Close{7})
	list["names"], err[4] = AppendNames(nil, Names{ResolvConf: true, Hosts: true, Devices: map[string]int{"lo": 1, "eth0": 2}})
	if e := errors.Join(err[:]...); e != nil {
		t.Fatal(e)
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	for name, message := range examples(t) {
		got, err := codecs[name](message)
		if err != nil || !bytes.Equal(got, message) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, message)
		}
		for other, read := range codecs {
			if _, err := read(message); other != name && err == nil {
				t.Errorf("%s was read as %s", name, other)
			}
		}
		for n := range message {
			if _, err := codecs[name](message[:n]); name != "reply" && err == nil {
				t.Errorf("the first %d bytes of %s were accepted", n, name)
			}
		}
	}
	got, err := ReadOpen(examples(t)["open"])
	if err != nil || !reflect.DeepEqual(got, openExample) {
		t.Errorf("%+v, %v, want %+v", got, err, openExample)
	}
}

func TestMalformed(t *testing.T) {
	for _, body := range []string{
		``, `null`, `7`, `{}`, `{"door":7,"door":8}`, `{"Door":7}`, `{"door":7 }`, `{"door":7}x`, `{"door":7,"more":1}`, `{"door":-1}`,
		`{"door":7.0}`, `{"door":1e1}`, `{"door":18446744073709551616}`,
	} {
		if m, err := ReadReport(append([]byte{byte(KindReport)}, body...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", body, m, err)
		}
	}
	long := append([]byte{byte(KindOpen)}, `{"door":1,"name":"","rules":"`+strings.Repeat("x", MaxMessage)+`"}`...)
	if _, err := ReadOpen(long); !errors.Is(err, ErrMalformed) {
		t.Errorf("a long message: %v", err)
	}
	for _, reply := range []string{"", "\x06", "\x06\x00\x00\x00\x00\x00\x00\x00", "\x05\x00\x00\x00\x00\x00\x00\x00\x00", "\x08\x00\x00\x00\x00\x00\x00\x00\x00", "\x07\x00\x00\x00\x00\x00\x00\x00\x00" + strings.Repeat("x", MaxText+1)} {
		if r, err := ReadReply([]byte(reply)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.20q: %v, %v", reply, r.Kind, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for name, change := range map[string]func(*Open){
		"name":             func(o *Open) { o.Name = strings.Repeat("x", MaxName+1) },
		"ask":              func(o *Open) { o.Ask = strings.Repeat("x", MaxAsk+1) },
		"placeholder":      func(o *Open) { o.Placeholder = o.Placeholder[:MinPlaceholder-1] },
		"long placeholder": func(o *Open) { o.Placeholder = strings.Repeat("x", MaxName+1) },
		"rules":            func(o *Open) { o.Rules = json.RawMessage(`"` + strings.Repeat("x", MaxMessage) + `"`) },
		"not JSON":         func(o *Open) { o.Rules = json.RawMessage(`{`) },
	} {
		o := openExample
		change(&o)
		if m, err := AppendOpen(nil, o); err == nil || m != nil {
			t.Errorf("%s: accepted as %.100q", name, m)
		}
	}
	o := openExample
	o.Name = "a\xff\u2028"
	m, err := AppendOpen(nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOpen(m); err != nil || got.Name != "a?\u2028" {
		t.Errorf("%q, %v", got.Name, err)
	}
	long := `{"door":1,"name":"` + strings.Repeat("x", MaxName+1) + `","rules":{}}`
	if _, err := ReadOpen(append([]byte{byte(KindOpen)}, long...)); err == nil {
		t.Error("accepted a long name")
	}
	r, err := ReadReply(AppendReply(nil, Reply{KindReported, 1, strings.Repeat("x", MaxText+1)}))
	if err != nil || len(r.Text) != MaxText {
		t.Errorf("a reply with a text of %d bytes, %v", len(r.Text), err)
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Connections: 1, Denied: 2, BytesUp: 3, BytesDown: 4, Denials: []Denial{{"example.org", 443, "no rule", "host: example.org", 2}}}
	got, err := ReadSummary(string(AppendSummary(nil, s)))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v, want %+v", got, err, s)
	}
	long := Summary{Denials: make([]Denial, MaxDenials+1)}
	for n := range long.Denials {
		long.Denials[n].Name = strings.Repeat("\u2028", 1000)
	}
	text := AppendSummary(nil, long)
	if got, err := ReadSummary(string(text)); err != nil || len(got.Denials) != 1 || len(text) > MaxText {
		t.Errorf("%d bytes with %d denials, %v", len(text), len(got.Denials), err)
	}
	for _, bad := range []string{
		"", "{", `{"connections":-1}`, `{"denied":-1}`, `{"bytes_up":-1}`, `{"bytes_down":-1}`, `{"denials":[{"count":-1}]}`,
		`{"denials":[` + strings.Repeat(`{},`, MaxDenials) + `{}]}`, `{}` + strings.Repeat(" ", MaxText),
	} {
		if s, err := ReadSummary(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.60q: %+v, %v", bad, s, err)
		}
	}
}

// FuzzMessage: no message makes a decoder panic, and an accepted one has exactly one encoding.
func FuzzMessage(f *testing.F) {
	for _, message := range examples(f) {
		f.Add(message)
	}
	f.Add([]byte("\x01{\"door\":1,\"name\":\"\\ufffd\",\"rules\":null}"))
	f.Fuzz(func(t *testing.T, message []byte) {
		for name, again := range codecs {
			got, err := again(message)
			if err == nil && !bytes.Equal(got, message) {
				t.Errorf("%s\n got %q\nfrom %q", name, got, message)
			}
		}
		if s, err := ReadSummary(string(message)); err == nil && len(AppendSummary(nil, s)) > MaxText {
			t.Error("a summary grew")
		}
	})
}
