package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"corral/internal/config"
)

// TestTokensReadAgain: a change of the files counts within a second, however many requests come, and a file with a mistake
// changes nothing.
func TestTokensReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, hash := config.NewToken()
		second, hash2 := config.NewToken()
		files, fault, reads := config.Principals{{Name: "a", Hash: hash}}, error(nil), 0
		var said bytes.Buffer
		s := &tokens{now: files, after: time.Now(), log: slog.New(slog.NewTextHandler(&said, nil)), read: func() (config.Config, error) {
			reads++
			return config.Config{Principals: files}, fault
		}}
		accepts := func(token string) bool {
			_, ok := s.authenticate(token)
			return ok
		}
		files = config.Principals{{Name: "b", Hash: hash2}}
		for range 1000 {
			if !accepts(first) || accepts(second) {
				t.Fatal("the files were read for each request")
			}
		}
		time.Sleep(time.Second)
		if accepts(first) || !accepts(second) {
			t.Error("a change does not count after a second")
		}
		fault = errors.New("config.yaml:3: mistake")
		for range 3 {
			time.Sleep(time.Second)
			if !accepts(second) {
				t.Error("a file with a mistake revoked a token")
			}
		}
		if n := strings.Count(said.String(), "config.yaml:3: mistake"); n != 1 {
			t.Errorf("the mistake was logged %d times", n)
		}
		files, fault = nil, nil
		time.Sleep(time.Second)
		if accepts(second) {
			t.Error("the last token is accepted without an entry")
		}
		if reads != 5 {
			t.Errorf("%d readings", reads)
		}
	})
}
