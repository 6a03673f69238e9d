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

// again decodes a message and encodes it again.
func again(message []byte) ([]byte, error) {
	if r, err := ReadReply(message); err == nil {
		return r.Encode(), nil
	}
	m, err := Read(message)
	if err != nil {
		return nil, err
	}
	return Encode(m)
}

// examples returns one message of each kind of the supervisor.
func examples(t testing.TB) [][]byte {
	t.Helper()
	var list [][]byte
	for _, m := range []Message{
		openExample, Update{7, accessExample}, Report{7}, Close{7}, Names{ResolvConf: true, Hosts: true, Devices: map[string]int{"lo": 1, "eth0": 2}},
	} {
		message, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Read(message); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v, %v, want %+v", got, err, m)
		}
		list = append(list, message)
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	for _, message := range append(examples(t), Reply{KindOpened, 1 << 40, "no"}.Encode()) {
		if got, err := again(message); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%q, %v, want %q", got, err, message)
		}
	}
	for _, message := range examples(t) {
		if r, err := ReadReply(message); err == nil {
			t.Errorf("%q was read as the reply %+v", message, r)
		}
		for n := range message {
			if m, err := Read(message[:n]); err == nil {
				t.Errorf("the first %d bytes of %q were accepted as %+v", n, message, m)
			}
		}
		for _, kind := range []Kind{0, KindOpen, KindUpdate, KindReport, KindClose, KindNames, KindOpened, 99} {
			other := append([]byte{byte(kind)}, message[1:]...)
			if m, err := Read(other); err == nil && m.kind() != kind {
				t.Errorf("%q was read as %T", other, m)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, body := range []string{
		``, `null`, `7`, `{}`, `{"door":7,"door":8}`, `{"Door":7}`, `{"door":7 }`, `{"door":7}x`, `{"door":7,"more":1}`, `{"door":-1}`,
		`{"door":7.0}`, `{"door":1e1}`, `{"door":18446744073709551616}`,
	} {
		if m, err := Read(append([]byte{byte(KindReport)}, body...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v, %v", body, m, err)
		}
	}
	long := append([]byte{byte(KindOpen)}, `{"door":1,"name":"","rules":"`+strings.Repeat("x", MaxMessage)+`"}`...)
	if _, err := Read(long); !errors.Is(err, ErrMalformed) {
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
		if m, err := Encode(o); err == nil || m != nil {
			t.Errorf("%s: accepted as %.100q", name, m)
		}
	}
	o := openExample
	o.Name = "a\xff\u2028"
	m, err := Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(m); err != nil || got.(Open).Name != "a?\u2028" {
		t.Errorf("%q, %v", got, err)
	}
	long := `{"door":1,"name":"` + strings.Repeat("x", MaxName+1) + `","rules":{}}`
	if _, err := Read(append([]byte{byte(KindOpen)}, long...)); err == nil {
		t.Error("accepted a long name")
	}
	r, err := ReadReply(Reply{KindReported, 1, strings.Repeat("x", MaxText+1)}.Encode())
	if err != nil || len(r.Text) != MaxText {
		t.Errorf("a reply with a text of %d bytes, %v", len(r.Text), err)
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Connections: 1, Denied: 2, BytesUp: 3, BytesDown: 4, Denials: []Denial{{"example.org", 443, "no rule", "host: example.org", 2}}}
	got, err := ReadSummary(s.Encode())
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v, want %+v", got, err, s)
	}
	long := Summary{Denials: make([]Denial, MaxDenials+1)}
	for n := range long.Denials {
		long.Denials[n].Name = strings.Repeat("\u2028", 1000)
	}
	text := long.Encode()
	if got, err := ReadSummary(text); err != nil || len(got.Denials) != 1 || len(text) > MaxText {
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
		if got, err := again(message); err == nil && !bytes.Equal(got, message) {
			t.Errorf(" got %q\nfrom %q", got, message)
		}
		if s, err := ReadSummary(string(message)); err == nil && len(s.Encode()) > MaxText {
			t.Error("a summary grew")
		}
	})
}
