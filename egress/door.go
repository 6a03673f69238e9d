package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"corral/egress/control"
	"corral/egress/names"
	"corral/egress/relay"
	"corral/internal/ratelimit"
	"corral/internal/text"
	"corral/policy/network"
)

// Bounds of a door.
const (
	maxNames     = 4096
	maxListeners = 768
	// doorFiles are the descriptors of a door without a name: two seeds and one that is made of them, the socket and the listener
	// of its DNS server, and 16 connections to that.
	doorFiles = 5 + 16
)

// logRate bounds the lines about a door in the log.
var logRate = ratelimit.Rate{Burst: 50, PerSecond: 5}

// firstName is the synthetic address of the first name. The range is 198.18.0.0/15, and the first one is the job's own.
var firstName = netip.MustParseAddr("198.18.0.2")

// A door has the network access of a job or session.
type door struct {
	server *Server
	ask    string
	// placeholder stands for secrets in what the job knows
	placeholder string
	authority   *relay.Issuer // that the job trusts; nil: none
	record      record
	log         doorLog
	ctx         context.Context // ends when the door is closed
	cancel      context.CancelFunc
	udp         net.PacketConn
	seeds       *source
	tcp         net.Listener
	conns       *budget
	files       *share // of Server.files
	gate        gate
	rules       atomic.Pointer[rules] // in force
	making      sync.Mutex            // held while listeners are made, which takes a second if the job gets in the way

	mu sync.Mutex
	// The fields below are guarded by mu.
	closed bool
	hosts  map[string]*host
	sites  int
	next   netip.Addr // the synthetic address of the next name
}

// rules are one generation of the rules of a door.
type rules struct {
	set     *network.Set
	private []netip.Prefix
	secrets map[string]*relay.Secret // by name
}

// A host is a name that was looked up. It keeps its address as long as the door is open, so that an address never becomes that
// of another name.
type host struct {
	name  string
	addr  netip.Addr
	sites map[uint16]*site // by port; guarded by door.mu
}

// newDoor makes a door. It leaves the files to the caller.
func (s *Server) newDoor(m control.Open, files []*os.File) (*door, error) {
	if len(files) != control.OpenDescriptors {
		return nil, fmt.Errorf("the door came with %d descriptors, must have %d", len(files), control.OpenDescriptors)
	}
	d := &door{
		server: s, ask: m.Ask, placeholder: m.Placeholder, conns: newBudget(s.Connections),
		files: newShare(s.files, s.most, 2*s.Connections+doorFiles+few), // so that it can have as many connections as the operator allows
		hosts: map[string]*host{}, next: firstName,
		gate: newGate(s.requests),
		log:  doorLog{to: s.Log.With("name", m.Name, "request", m.Request), rate: logRate},
	}
	d.record.lost = m.Again
	var err error
	if d.authority, err = s.authorityOf(m.Authority); err != nil {
		return nil, err
	}
	set, decoded, err := d.read(m.Rules, false)
	if err != nil {
		return nil, err
	}
	d.apply(set, decoded, m.Secrets)
	if !d.files.take(doorFiles) {
		return nil, errors.New("jobs of the user have too many connections open")
	}
	if err := d.listen(files); err != nil {
		d.files.give(doorFiles)
		return nil, err
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	s.work.Go(func() { names.ServeUDP(d.udp, d) })
	s.work.Go(func() { names.ServeTCP(d.tcp, d) })
	return d, nil
}

// listen takes over the sockets of the DNS server, and the seeds.
func (d *door) listen(files []*os.File) (err error) {
	if d.udp, err = net.FilePacketConn(files[0]); err != nil {
		return fmt.Errorf("the door's UDP socket: %w", err)
	}
	if d.tcp, err = net.FileListener(files[1]); err != nil {
		d.udp.Close()
		return fmt.Errorf("the door's TCP socket: %w", err)
	}
	if d.seeds, err = newSource(files[2], files[3]); err != nil {
		d.tcp.Close()
		d.udp.Close()
		return err
	}
	return nil
}

// read compiles rules for what the job asked for. If some is set, what the rules do not have of it is left out; otherwise it is
// an error.
func (d *door) read(encoded json.RawMessage, some bool) (*network.Set, *network.Rules, error) {
	r, err := network.Decode(encoded)
	if err != nil {
		return nil, nil, err
	}
	set, err := network.Compile(r)
	if err != nil {
		return nil, nil, err
	}
	ask := d.ask
	if words := strings.FieldsFunc(ask, isSeparator); some && len(words) > 0 {
		kept := words[:0]
		for _, word := range words {
			if _, err := set.Narrow(word); err == nil {
				kept = append(kept, word)
			}
		}
		if len(kept) == 0 {
			kept = []string{"none"}
		}
		ask = strings.Join(kept, " ")
	}
	set, err = set.Narrow(ask)
	return set, r, err
}

func isSeparator(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) }

// apply makes rules those in force.
func (d *door) apply(set *network.Set, r *network.Rules, secrets []control.Secret) {
	d.record.up.limit.Store(r.Bytes.Up)
	d.record.down.limit.Store(r.Bytes.Down)
	d.rules.Store(&rules{set, r.Private, secretsOf(secrets)})
}

// update replaces the rules, and closes what the new ones do not allow. Rules that cannot be read allow nothing.
func (d *door) update(a control.Access) {
	set, r, err := d.read(a.Rules, true)
	if err != nil {
		d.server.Log.Error("invalid rules: nothing is allowed", "error", err)
		set, r = new(network.Set), new(network.Rules)
	}
	d.apply(set, r, a.Secrets)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hosts {
		for port, s := range h.sites {
			if !allows(set, s) {
				d.remove(h, port, "the rules have changed")
				continue
			}
			s.recheck()
		}
	}
}

// allows reports whether a set has a site, with its protocol: a connection that was passed on unread must end where requests are checked.
func allows(set *network.Set, s *site) bool {
	decision := set.Decide(s.host.name, s.port)
	return decision.Allowed && decision.Protocol == s.protocol
}

// remove closes a site. The caller holds d.mu.
func (d *door) remove(h *host, port uint16, why string) {
	h.sites[port].close(why)
	delete(h.sites, port)
	d.sites--
}

// close closes everything of the door. Its goroutines end on their own.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.rules.Store(&rules{set: new(network.Set)})
	d.cancel()
	d.udp.Close()
	d.tcp.Close()
	d.seeds.Close()
	for _, h := range d.hosts {
		for port := range h.sites {
			d.remove(h, port, "the door was closed")
		}
	}
	d.files.give(doorFiles)
}

// deny records a denial, and logs it if it is a new one.
func (d *door) deny(denial control.Denial, quiet bool) {
	if d.record.deny(denial, quiet) {
		d.log.write("denied", "host", denial.Name, "port", denial.Port, "verdict", "denied", "why", text.Cut(denial.Why, maxLogged))
	}
}

// A doorLog writes lines of a door, as far as their rate allows.
type doorLog struct {
	to   *slog.Logger
	rate ratelimit.Rate

	mu    sync.Mutex
	lines ratelimit.Lines // guarded by mu
}

func (l *doorLog) write(message string, attrs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok, omitted := l.lines.Allow(l.rate, time.Now())
	if !ok {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, "unlogged", omitted)
	}
	l.to.Info(message, attrs...)
}
