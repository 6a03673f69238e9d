package cell

import (
	"errors"
	"testing"

	"corral/isolate/host"
	"corral/job"
)

// TestRoomForJail: a user may have a quarter of all jails in any case, and more as long as a quarter is left to others.
func TestRoomForJail(t *testing.T) {
	s := &Jails{Config: Config{MaxJails: 8}, all: map[jailKey]*Jail{}}
	fill := func(peer host.Peer) (n int) {
		for ; ; n++ {
			err := s.roomForJail(peer)
			var refusal *job.Refusal
			if errors.As(err, &refusal) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
			j := &Jail{key: jailKey{payer: peer.UID}}
			j.use()
			s.all[jailKey{session: string(rune('a' + len(s.all)))}] = j
		}
	}
	for _, tt := range []struct {
		uid  uint32
		want int
	}{{1001, 6}, {1002, 2}, {1003, 0}, {0, 0}} {
		if n := fill(host.Peer{UID: tt.uid}); n != tt.want {
			t.Errorf("user %d may have %d jails, want %d", tt.uid, n, tt.want)
		}
	}
}
