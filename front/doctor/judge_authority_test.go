package doctor

import (
	"errors"
	"os"
	"path/filepath"
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
		{"not readable", nil, errors.New("permission denied"), Degraded, []string{"permission denied"}},
		{"new", made(0), nil, OK, []string{"corral jobs ", ", SHA-256 ", ", valid until " + time.Now().Add(years).UTC().Format("2006-")}},
		{"31 days left", made(years - 31*24*time.Hour), nil, OK, []string{"valid until "}},
		{"29 days left", made(years - 29*24*time.Hour), nil, Degraded, []string{"corral jobs ", "valid until "}},
		{"ended", made(years + time.Hour), nil, Degraded, []string{"valid until "}},
		{"text", []byte("x"), nil, Degraded, []string{"no certificate"}},
		{"broken", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), nil, Degraded, []string{"of the test"}},
	} {
		status, detail := judgeAuthority(&evidence{host: &host{authorities: []authorityFile{{"of the test", tt.text, tt.err}}}})
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
	of := func(text ...[]byte) (list []authorityFile) {
		for _, b := range text {
			list = append(list, authorityFile{text: b})
		}
		return list
	}
	if status, detail := judgeAuthority(&evidence{host: &host{authorities: of(made(0), made(years-29*24*time.Hour), made(0))}}); status != Degraded || !strings.HasPrefix(detail, "3 authorities; the first to end: corral jobs") {
		t.Errorf("one of three is about to end: %s %s", status, detail)
	}
	if status, detail := judgeAuthority(&evidence{host: &host{authorities: of(made(0), []byte("x"))}}); status != Degraded {
		t.Errorf("one of two is broken: %s %s", status, detail)
	}
	if status, detail := judgeAuthority(&evidence{host: &host{}}); status != OK || !strings.HasPrefix(detail, "none yet") {
		t.Errorf("none: %s %s", status, detail)
	}
}

// TestReadAuthorities: those of all users in a state directory are read.
func TestReadAuthorities(t *testing.T) {
	state := t.TempDir()
	for _, user := range []string{"0", "1000"} {
		dir := filepath.Join(state, "authority", user)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "certificate.pem"), []byte(user), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if list := readAuthorities(state); len(list) != 2 || string(list[1].text) != "1000" || list[1].err != nil {
		t.Errorf("%+v", list)
	}
	if list := readAuthorities(filepath.Join(state, "none")); list != nil {
		t.Errorf("%+v", list)
	}
}
