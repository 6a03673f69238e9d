package isolate

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"corral/internal/fault"
	"corral/internal/text"
	"corral/isolate/admit"
	"corral/isolate/host"
)

// A Reloaded says what reading the configuration again had for results.
type Reloaded struct {
	Restart  []string // keys with a new value that only a restart of the supervisor applies
	Rejected []string // repositories that are not served, and users whose jobs use more than user_memory now allows, with the reason
}

// Notes returns r as sentences for an operator.
func (r Reloaded) Notes() []string {
	var notes []string
	for _, key := range r.Restart {
		notes = append(notes, key+" was changed: needs a restart of the supervisor")
	}
	return append(notes, r.Rejected...)
}

// A reloader reads the configuration again while jobs run.
type reloader struct {
	s   *Supervisor
	mu  fault.Mutex            // held by a reload
	now atomic.Pointer[Config] // the configuration that applies to new requests
}

func newReloader(s *Supervisor) *reloader {
	r := &reloader{s: s}
	r.now.Store(&s.config)
	return r
}

// Reload reads the configuration again (Config.Again) and applies it to the requests that begin from now on. Jobs and
// sessions that exist keep their limits and their jail; the next job of a session is refused if its repository is not
// served any more. If the configuration is faulty, nothing changes and the error says what is wrong. Concurrent calls
// wait for each other.
func (s *Supervisor) Reload() (Reloaded, error) {
	defer fault.End() // all jobs depend on what it changes
	if !s.work.Begin() {
		return Reloaded{}, host.ErrEnding
	}
	defer s.work.Done()
	return s.reloads.reload()
}

func (r *reloader) reload() (Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.s
	done, err := r.apply()
	if err != nil {
		s.config.Log.Error("configuration not reloaded: the former one applies", "error", err)
		return done, err
	}
	s.config.Log.Info("configuration reloaded", "needs_restart", done.Restart)
	return done, nil
}

func (r *reloader) apply() (Reloaded, error) {
	s := r.s
	if s.config.Again == nil {
		return Reloaded{}, errors.New("this supervisor was started for one client, and reads no configuration again")
	}
	c, err := s.config.Again()
	if err != nil {
		return Reloaded{}, err
	}
	if err := c.complete(); err != nil {
		return Reloaded{}, err
	}
	served, err := s.served.Reload(c.served())
	if err != nil {
		return Reloaded{}, err
	}
	if s.ctx.Err() != nil { // otherwise every repository would have been rejected, because helper processes are gone
		return Reloaded{}, host.ErrEnding
	}
	served.LogRejected()
	s.served.Replace(served)
	s.network.reload()
	s.jobs.adjust(c.MaxJobs, c.MaxPerUser)
	s.server.adjust(c.MaxPerUser)
	s.sessions.Adjust(c.Layers)
	s.cells.Adjust(c.MaxJails, c.JailIdle)
	rejected := reasons(served)
	if err := s.instance.Groups.LimitUsers(max(0, c.UserMemory)); err != nil {
		rejected = append(rejected, fmt.Sprintf("user_memory is not lowered for all, reload when jobs have ended: %v", err))
	}
	// A request that took the former decisions may build such a jail after this; it ends when it has been idle.
	s.cells.Retire(served.Holds)
	s.expose(&c)
	r.now.Store(&c)
	return Reloaded{Restart: c.needsRestart(&s.config), Rejected: rejected}, nil
}

// maxExposed bounds what the supervisor lists of what jobs can reach.
const maxExposed = 8

// expose adds to c.Exposed the sockets in toolchains, and logs all: a job can connect to a socket that it sees.
func (s *Supervisor) expose(c *Config) {
	sockets, err := host.SocketsBelow(s.tools.Paths)
	if err != nil {
		s.config.Log.Warn("it is not known whether jobs can connect to sockets in toolchains", "error", err)
	}
	for _, path := range sockets {
		c.Exposed = append(c.Exposed, text.Quote(path)+" is a socket in a toolchain: jobs can connect to it")
	}
	if n := len(c.Exposed) - maxExposed; n > 0 {
		c.Exposed = append(c.Exposed[:maxExposed:maxExposed], fmt.Sprintf("and %d more", n))
	}
	for _, what := range c.Exposed {
		s.config.Log.Warn("jobs can reach what an operator may not mean", "what", what)
	}
}

// maxReasons bounds the repositories that an answer lists as not served, with the reason. The diagnostic log has all.
const maxReasons = 64

// reasons returns why configured repositories are not served.
func reasons(served *admit.Served) []string {
	paths, why := served.Rejected()
	var list []string
	for n, path := range paths {
		if n == maxReasons {
			return append(list, fmt.Sprintf("%d more repositories are not served: see the supervisor's log", len(paths)-n))
		}
		list = append(list, fmt.Sprintf("%s is not served: %v", text.Quote(path), why(path)))
	}
	return list
}

// needsRestart returns the keys of the configuration file whose values differ between c and running, and which a running
// supervisor cannot change: the objects that depend on them exist.
func (c *Config) needsRestart(running *Config) []string {
	var keys []string
	for _, k := range []struct {
		key  string
		same bool
	}{
		{"uids", c.UIDBase == running.UIDBase && c.UIDSize == running.UIDSize},
		{"toolchains", slices.Equal(c.Toolchains, running.Toolchains)},
		{"etc_files", slices.Equal(c.EtcFiles, running.EtcFiles)},
		{"warm_slots", c.Slots == running.Slots},
		{"max_warm_slots", c.MaxSlots == running.MaxSlots},
		{"network_connections", c.Connections == running.Connections},
		{"audit", c.Audit == running.Audit},
		{"layers.keep", c.Layers.Keep == running.Layers.Keep},
	} {
		if !k.same {
			keys = append(keys, k.key)
		}
	}
	return keys
}
