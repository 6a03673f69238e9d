package cli

import "testing"

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
