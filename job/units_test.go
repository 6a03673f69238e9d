package job

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "4096": 4096, "1b": 1, "1k": 1024, "2KiB": 2048, "3kb": 3000, "512MiB": 512 << 20, "512 MiB": 512 << 20,
		"1.5g": 3 << 29, "2GB": 2_000_000_000, "1t": 1 << 40, "0.5k": 512, "1.0009k": 1024,
		"": 0, "0": 0, "-1": 0, "0.4": 0, "MiB": 0, "1x": 0, "1 2": 0, "1e400": 0, "nan": 0, "inf": 0, "9000000t": 0, "1k1": 0,
		"0x10": 0,
	} {
		if got, err := ParseSize(s); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseCount(t *testing.T) {
	for s, want := range map[string]int64{"1": 1, "512": 512, "0": 0, "-5": 0, "1.5": 0, "1k": 0, "": 0, "99999999999999999999": 0} {
		if got, err := ParseCount(s); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1000, "1.5": 1500, "0.01": 10, "0.0104": 10, "1000": 1_000_000,
		"0": 0, "0.009": 0, "1001": 0, "-1": 0, "nan": 0, "inf": 0, "two": 0, "": 0,
	} {
		if got, err := ParseCPUs(s); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "2.5": 2500 * time.Millisecond, "60": time.Minute, "1ms": time.Millisecond,
		"": 0, "0": 0, "-1": 0, "-1s": 0, "nan": 0, "inf": 0, "-inf": 0, "1e9": 0, "1e-12": 0, "soon": 0, "1d": 0,
	} {
		if got, err := ParseDuration(s); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{second(ParseSize("x")), "must be a size such as 512MiB, 1.5GiB or 4096"},
		{second(ParseCount("x")), "must be a positive integer"},
		{second(ParseCPUs("x")), "must be a number of CPUs between 0.01 and 1000"},
		{second(ParseDuration("x")), "must be a time such as 30s, 5m or 1h30m"},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("got %v, want %s", tt.err, tt.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestFormat: a formatted value parses as the same value.
func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{1: "1", 1023: "1023", 1024: "1KiB", 1536: "1536", 512 << 20: "512MiB", 2 << 30: "2GiB", 3 << 40: "3TiB"} {
		got := FormatSize(n)
		if back, err := ParseSize(got); got != want || back != n || err != nil {
			t.Errorf("%d: %q, want %q; read back %d, %v", n, got, want, back, err)
		}
	}
	for n, want := range map[int64]string{10: "0.01", 1000: "1", 1500: "1.5", 1_000_000: "1000"} {
		got := FormatCPUs(n)
		if back, err := ParseCPUs(got); got != want || back != n || err != nil {
			t.Errorf("%d: %q, want %q; read back %d, %v", n, got, want, back, err)
		}
	}
}
