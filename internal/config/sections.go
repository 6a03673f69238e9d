package config

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Fsync says when what was written is on the disk.
type Fsync string

const (
	// Group syncs what was written within 20 ms, together.
	Group Fsync = "group"
	// Each waits for the disk, each time.
	Each Fsync = "each"
)

func fsyncKey(into *Fsync) key {
	return key{"fsync", func(p *parser, n *yaml.Node) {
		*into = Fsync(p.word("fsync", n, []string{string(Group), string(Each)}))
	}}
}

// Audit is about the supervisor's log.
type Audit struct {
	Fsync     Fsync
	MaxSize   int64         // audit.max_size: bytes after which another file is begun
	Keep      int           // audit.keep: files beside the one that is written; older ones are removed. 0 is all: none is
	KeepFor   time.Duration // audit.keep_for: how long each file is kept in any case
	UserDaily int64         // audit.user_daily: bytes that one user's records may take in a day
}

func (a *Audit) keys() []key {
	return []key{
		fsyncKey(&a.Fsync),
		sizeKey("max_size", &a.MaxSize, 1<<20, 1<<40),
		{"keep", func(p *parser, n *yaml.Node) {
			if n.Kind == yaml.ScalarNode && n.Value == unlimited {
				a.Keep = 0
				return
			}
			a.Keep = int(p.number("keep", "count", n, 1, 1_000_000))
		}},
		timeKey("keep_for", &a.KeepFor, time.Minute, 10*365*24*time.Hour),
		sizeKey("user_daily", &a.UserDaily, 16<<20, 1<<50),
	}
}

// Output is about what is kept of what jobs write.
type Output struct {
	Keep   int64 // output.keep: bytes stored of each stream, before compression: its head and its tail
	Redact bool  // output.redact: secrets are taken out before anything is returned or stored
}

func (o *Output) keys() []key {
	return []key{sizeKey("keep", &o.Keep, 64<<10, 512<<20), flagKey("redact", &o.Redact)}
}

// Artifacts is about the output that is stored.
type Artifacts struct {
	TTL      time.Duration // artifacts.ttl
	MaxCount int           // artifacts.max_count: of one user; the oldest go first
	MaxBytes int64         // artifacts.max_bytes: of one user, as stored; the oldest go first
	Fsync    Fsync         // artifacts.fsync
}

func (a *Artifacts) keys() []key {
	return []key{
		timeKey("ttl", &a.TTL, time.Minute, 365*24*time.Hour),
		countKey("max_count", &a.MaxCount, 1_000_000),
		sizeKey("max_bytes", &a.MaxBytes, 1<<20, 1<<50),
		fsyncKey(&a.Fsync),
	}
}

// HTTP is about the server of corral serve.
type HTTP struct {
	Listen         string        // http.listen: HOST:PORT
	AllowedHosts   []string      // http.allowed_hosts: HOST[:PORT] that a request may name, beside the address listened on
	AllowedOrigins []string      // http.allowed_origins: SCHEME://HOST[:PORT] of web pages that may call; nil is none
	MaxBody        int64         // http.max_body: bytes of a request's body
	SessionIdle    time.Duration // http.session_idle: an unused session ends after it
}

func (h *HTTP) keys() []key {
	return []key{
		{"listen", func(p *parser, n *yaml.Node) {
			if s := p.text("listen", n); s != "" && !address(s) {
				p.wanted("listen", "HOST:PORT such as 127.0.0.1:7070", n)
			} else {
				h.Listen = s
			}
		}},
		{"allowed_hosts", func(p *parser, n *yaml.Node) { h.AllowedHosts = p.names("allowed_hosts", n, hostName) }},
		{"allowed_origins", func(p *parser, n *yaml.Node) { h.AllowedOrigins = p.names("allowed_origins", n, origin) }},
		sizeKey("max_body", &h.MaxBody, 1<<10, 10<<20),
		timeKey("session_idle", &h.SessionIdle, time.Second, 7*24*time.Hour),
	}
}

// address says whether s is HOST:PORT. All addresses of the machine are 0.0.0.0 or [::]: they are not left out by mistake.
func address(s string) bool {
	host, port, err := net.SplitHostPort(s)
	number, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && host != "" && strconv.FormatUint(number, 10) == port && hostName(host) == ""
}

// hostName says what is wanted of HOST[:PORT], as requests have it (RFC 9110, section 7.2).
func hostName(s string) string {
	if s == "" || len(s) > 255 || strings.ContainsAny(s, "/?#@*, \t\r\n\x00") {
		return "a host's name such as build.example.org (no wildcards)"
	}
	return ""
}

// origin says what is wanted of an origin, as browsers send it (RFC 6454, section 6.2).
func origin(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != s || hostName(u.Host) != "" {
		return "an origin such as https://build.example.org (no wildcards)"
	}
	return ""
}
