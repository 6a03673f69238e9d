package server

import (
	"context"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/config"
)

// hangUps returns a channel that gets a value after SIGHUP, which does not end the process any more. A signal that arrives
// while one waits is the same request. The caller calls stop.
func hangUps() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// reloads reads the configuration again at each signal, until ctx ends. started is what the server was started with.
func (s *serving) reloads(ctx context.Context, signals <-chan os.Signal, t *tokens, started config.Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			s.reload(t, started)
		}
	}
}

// reload reads the configuration again. The principals apply at once: each request looks its token up. Tools and sessions are
// made of everything else, so the log names the other keys that differ from those of the start. A faulty file changes nothing.
func (s *serving) reload(t *tokens, started config.Config) {
	c, err := t.reload()
	if err != nil {
		t.log.Error("the configuration could not be read again: what was read before applies", "error", err)
		return
	}
	named := *s
	named.tokens = false // the last principal may be revoked while the server runs
	if err := named.only(&c); err != nil {
		t.log.Error("the server could not restart with the configuration", "error", err)
	}
	keys := slices.DeleteFunc(config.Changed(started, c), func(key string) bool { return key == "principals" })
	for _, key := range keys {
		t.log.Warn("a key of the configuration was changed: needs a restart of the server", "key", key)
	}
	t.log.Info("the configuration was read again", "principals", len(c.Principals), "need_restart", len(keys))
}
