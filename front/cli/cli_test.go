package cli

import (
	"testing"
	"time"
)

// TestFormatBytes checks the units and the rounding of sizes.
func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 999 << 10: "999.0 KiB", 1000 << 10: "1.0 MiB", 5 << 30: "5.0 GiB",
		1 << 62: "4096.0 PiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestParseAge: a number of days, or a duration.
func TestParseAge(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30d": 30 * 24 * time.Hour, "0d": 0, "65535d": 65535 * 24 * time.Hour, "12h": 12 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := ParseAge(s); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "d", "-1d", "1.5d", "65536d", "1d12h", "7"} {
		if got, err := ParseAge(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}
