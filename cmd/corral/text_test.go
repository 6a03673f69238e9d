package main

import (
	"testing"

	"corral/internal/nearest"
)

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{
		"rnu": "run", "runn": "run", "ru": "run", "versin": "version", "dokter": "doctor", "run": "run", "frobnicate": "", "nope": "", "edit": "", "sess": "session", "conf": "config",
		"": "", "x": "", "serv": "serve", "--run": "run",
	} {
		if got := nearest.Of(in, commands); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
