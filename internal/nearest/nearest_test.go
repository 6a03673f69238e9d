package nearest

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	known := []string{"run", "serve", "version", "doctor", "max_concurrent_jobs", "c", "cpp", "node", "php", "id"}
	for word, want := range map[string]string{
		"run": "run", "rnu": "run", "runn": "run", "ru": "run", "--run": "run", "serv": "serve", "versin": "version",
		"dokter": "doctor", "maxConcurrentJobs": "max_concurrent_jobs", "c++": "cpp", "nodejs": "node", "ip": "id",
		"vers": "version", "max": "max_concurrent_jobs", "erun": "run", "top": "",
		"": "", "x": "", "js": "", "py": "", "frobnicate": "", "c": "c",
		strings.Repeat("x", 1<<20): "",
	} {
		if got := Of(word, known); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
	if got := Of("rum", []string{"rue", "run"}); got != "rue" {
		t.Errorf("of two as near: %q", got)
	}
	if got := Of("run", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
