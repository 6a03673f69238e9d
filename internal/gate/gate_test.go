package gate

import (
	"net/http"
	"strings"
	"testing"
)

func TestGate(t *testing.T) {
	g := &Gate{Hosts: []string{"corral.example", "other.example:7070"}, Origins: []string{"https://app.example"}}
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:1": true, "127.0.0.1:7070": true, "127.8.9.1": true, "[::1]:7070": true, "Corral.example": true,
		"corral.example:99": true, "other.example:7070": true,
		"": false, "evil.example": false, "localhost.evil.example": false, "10.0.0.1:7070": false, "other.example:7071": false,
		"0.0.0.0": false, "[::]:7070": false,
	} {
		if got := g.Host(&http.Request{Host: host}); got != want {
			t.Errorf("host %q: %t", host, got)
		}
	}
	for origin, want := range map[string]bool{
		"http://localhost:6274": true, "https://app.example": true, "https://corral.example": true,
		"http://app.example": false, "https://evil.example": false, "null": false, "file://localhost": false, "": false,
		"http://evil.example@localhost": false, "http://localhost#x": false,
	} {
		if got := g.Origin(&http.Request{Header: http.Header{"Origin": {origin}}}); got != want {
			t.Errorf("origin %q: %t", origin, got)
		}
	}
	if !g.Origin(&http.Request{}) || g.Origin(&http.Request{Header: http.Header{"Origin": {"http://localhost", "http://localhost"}}}) {
		t.Error("a request without an Origin was refused, or one with two was accepted")
	}
}

func TestBearer(t *testing.T) {
	long := strings.Repeat("a", MaxToken)
	for header, want := range map[string]string{
		"Bearer a": "a", "bearer a": "a", "Bearer a b": "a b", "Bearer " + long: long,
		"": "", "Bearer": "", "Bearer ": "", "Basic a": "", "a": "", "Bearer " + long + "a": "",
	} {
		got, ok := Bearer(&http.Request{Header: http.Header{"Authorization": {header}}})
		if got != want || ok != (want != "") {
			t.Errorf("%.20q: %.20q, %t", header, got, ok)
		}
	}
	if _, ok := Bearer(&http.Request{Header: http.Header{"Authorization": {"Bearer a", "Bearer b"}}}); ok {
		t.Error("a request with two tokens has one")
	}
}
