package doctor

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"corral/egress/authority"
)

// TestJudgeAuthority: an authority is shown with what identifies it, and is to be replaced before it ends.
func TestJudgeAuthority(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour // authority.New's validity
	made := func(ago time.Duration) []byte {
		a, err := authority.New(time.Now().Add(-ago))
		if err != nil {
			t.Fatal(err)
		}
		return a.PEM()
	}
	for _, tt := range []struct {
		name   string
		text   []byte
		err    error
		status Status
		want   []string
	}{
		{"none", nil, &fs.PathError{Op: "open", Path: authorityFile, Err: fs.ErrNotExist}, OK, []string{"none yet"}},
		{"not readable", nil, errors.New("permission denied"), Degraded, []string{"permission denied"}},
		{"new", made(0), nil, OK, []string{"corral jobs ", ", SHA-256 ", ", valid until " + time.Now().Add(years).UTC().Format("2006-")}},
		{"31 days left", made(years - 31*24*time.Hour), nil, OK, []string{"valid until "}},
		{"29 days left", made(years - 29*24*time.Hour), nil, Degraded, []string{"corral jobs ", "valid until "}},
		{"ended", made(years + time.Hour), nil, Degraded, []string{"valid until "}},
		{"text", []byte("x"), nil, Degraded, []string{"no certificate"}},
		{"broken", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), nil, Degraded, []string{authorityFile}},
	} {
		status, detail := judgeAuthority(&evidence{host: &host{authority: tt.text, authorityErr: tt.err}})
		if status != tt.status {
			t.Errorf("%s: %s, want %s: %s", tt.name, status, tt.status, detail)
		}
		for _, part := range tt.want {
			if !strings.Contains(detail, part) {
				t.Errorf("%s: %q, want %q in it", tt.name, detail, part)
			}
		}
		if tt.name == "new" && strings.Count(detail, ":") != 31 {
			t.Errorf("not a fingerprint: %s", detail)
		}
	}
}
