package audit

import (
	"strings"
	"testing"
)

// TestReached: what a job reached is shown in words, and a text that does not say it as it is.
func TestReached(t *testing.T) {
	for reached, want := range map[string]string{
		"": "",
		`{"connections":3,"denied":0,"bytes_up":10,"bytes_down":2000}`:                                          ` reached="3 connections, 10 bytes up, 2000 down, 0 denied"`,
		`{"denied":5,"denials":[{"name":"example.org","port":443,"count":4},{"name":"example.com","count":1}]}`: ` reached="0 connections, 0 bytes up, 0 down, 5 denied: example.org:443, example.com"`,
		`{"connections":3,"deni…`: ` reached="{\"connections\":3,\"deni…"`,
		`{"connections":-1}`:      ` reached="{\"connections\":-1}"`,
	} {
		if got := Format(&Record{Event: Finished, Reached: reached}); !strings.HasSuffix(got, " exit=0"+want) {
			t.Errorf("%s: %s, want %s", reached, got, want)
		}
	}
}
