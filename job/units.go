package job

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits maps lower-case suffixes of sizes to their factors.
var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1000,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1_000_000,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1_000_000_000,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1_000_000_000_000,
}

// ParseSize parses a size in bytes: a positive number and a unit in either case, such as 512MiB, 1.5g or 4096. A
// single-letter unit is a power of 1024. A fraction of a byte is cut off; the result is at least 1.
func ParseSize(s string) (int64, error) {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	factor, ok := sizeUnits[strings.ToLower(strings.TrimSpace(s[end:]))]
	n, err := strconv.ParseFloat(s[:end], 64)
	if err != nil || !ok || n <= 0 || n*float64(factor) > math.MaxInt64/2 || n*float64(factor) < 1 {
		return 0, errors.New("must be a size such as 512MiB, 1.5GiB or 4096")
	}
	return int64(n * float64(factor)), nil
}

// ParseCount parses a positive integer.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.New("must be a positive integer")
	}
	return n, nil
}

// ParseCPUs parses a number of CPUs between 0.01 and 1000, and returns thousandths of a CPU.
func ParseCPUs(s string) (int64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0.01 && n <= 1000) {
		return 0, errors.New("must be a number of CPUs between 0.01 and 1000")
	}
	return int64(math.Round(n * 1000)), nil
}

// ParseDuration parses a positive duration such as 30s or 1m30s; a number without a unit, such as 2.5, is in seconds.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		var seconds float64
		if seconds, err = strconv.ParseFloat(s, 64); err == nil && seconds > 0 && seconds < 1e9 {
			d = time.Duration(seconds * float64(time.Second))
		}
	}
	if err != nil || d <= 0 {
		return 0, errors.New("must be a time such as 30s, 5m or 1h30m")
	}
	return d, nil
}

// FormatSize formats a size in the largest unit that divides it. ParseSize returns the same value.
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.unit && n%u.unit == 0 {
			return strconv.FormatInt(n/u.unit, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatCPUs formats thousandths of a CPU. ParseCPUs returns the same value.
func FormatCPUs(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }
