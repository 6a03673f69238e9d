// Package network has the rules that say which hosts the jobs of a repository may reach.
//
// An operator writes Rules in the configuration. The supervisor passes them on unread, as the JSON of Encode, and
// corral-egress, which connects jobs to hosts, obeys the Set that Compile makes of them. A connection that no entry of Allow has is not
// allowed, and an entry of Deny takes precedence over all of Allow. A job can ask for less than its repository may reach,
// never for more: see Set.Narrow.
//
// A host is written as its name, HOST, or as *.HOST for all names below it, at any depth, but not HOST itself. Names are in
// lower case without a final dot. There are no addresses: what a name resolves to is checked when it is connected to.
//
// The package is pure: it opens nothing and resolves nothing. It uses the standard library alone, so that the small program
// that faces the Internet has little else in it.
package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Bounds of Rules and of what a job asks for.
const (
	MaxSize    = 48 << 10 // bytes of the JSON of Rules
	MaxRules   = 256      // entries of each list of Rules
	MaxPorts   = 64       // of one Rule
	MaxAsk     = 4 << 10  // bytes of what a job asks for
	MaxAsked   = 64       // words in it
	maxHost    = 253      // bytes of a name, RFC 1035
	maxLabel   = 63       // bytes between the dots of a name
	noAccess   = "none"   // what a job asks for to reach no host
	maxPattern = maxHost + len(wildcard)
)

// The protocols of a Rule.
const (
	// TLS is a connection that begins with TLS for the name of the host.
	TLS = "tls"
	// HTTP is plain HTTP/1 for the name of the host.
	HTTP = "http"
	// TCP is any connection: only its address and port are known to belong to the host.
	TCP = "tcp"
)

// Rules say what the jobs of a repository may reach. The zero Rules allow nothing.
type Rules struct {
	// Hosts that jobs may reach.
	//
	// If several entries have a port of a host, the first of them says the protocol: an entry with `methods`, `paths` or `secret`
	// comes before those that have its host without them. A request needs one entry that allows it.
	Allow []Rule `json:"allow,omitempty" yaml:"allow" without:"none" example:"[{preset: npm}, {host: example.org}]"`
	// Hosts that jobs may not reach, whatever `allow` has: `HOST`, or `*.HOST` for all names below it.
	Deny []string `json:"deny,omitempty" yaml:"deny" form:"host-pattern" without:"none" example:"[telemetry.example.org]"`
	// Networks in which hosts are reached although their addresses are not public.
	Private []netip.Prefix `json:"private,omitempty" yaml:"private" without:"none" example:"[10.1.0.0/16]"`
	// How much a job may transfer. Jobs of a session share it.
	Bytes Bytes `json:"bytes,omitzero" yaml:"bytes" example:"{up: 50MiB, down: 2GiB}"`
}

// A Rule allows connections to a host, or to those of a preset.
type Rule struct {
	// Hosts that belong together: `npm`, `anthropic` and [others](#presets). Only `registry` and `min_age` can be beside it.
	Preset string `json:"preset,omitempty" yaml:"preset" form:"preset" without:"none" example:"npm"`
	// `HOST`, or `*.HOST` for all names below it, but not `HOST` itself.
	Host string `json:"host,omitempty" yaml:"host" form:"host-pattern" without:"required unless there is a preset" example:"example.org"`
	// Ports of the host.
	Ports []uint16 `json:"ports,omitempty" yaml:"ports" form:"natural" min:"1" max:"65535" list:"some" without:"443; for http 80; tcp needs it" example:"[8443]"`
	// What is spoken there. `tls`: the name in the connection must be the host's; `http`: plain HTTP, likewise; `tcp`: anything.
	Protocol string `json:"protocol,omitempty" yaml:"protocol" words:"tls http tcp" implied:"tls"`

	// Methods of the requests that are allowed.
	//
	// With `methods`, `paths`, `secret` or `registry`, TLS of jobs ends in `corral-egress`, which sees their requests: jobs trust
	// the [authority](#requests-and-secrets) of the installation there.
	Methods []string `json:"methods,omitempty" yaml:"methods" form:"method" list:"some" without:"all" example:"[GET, HEAD]"`
	// Paths of the requests that are allowed. `*` is any segment, and `**` at the end one or more.
	Paths []string `json:"paths,omitempty" yaml:"paths" form:"request-path" list:"some" without:"all" example:"[\"/repos/acme/**\"]"`
	// Headers of these requests that are passed on beside [those that many clients send](#requests-and-secrets).
	//
	// It needs `methods` or `paths`: without both, all are.
	Headers []string `json:"headers,omitempty" yaml:"headers" form:"header" list:"some" without:"none" example:"[X-Acme-Tenant]"`
	// Name in `secrets` of the secret that takes the place of its placeholder in these requests.
	Secret string `json:"secret,omitempty" yaml:"secret" form:"secret" without:"none" example:"acme-api"`
	// The host serves packages of this kind, `go`, `npm`, `pypi`, `cargo` or `debian`: only GET and HEAD are allowed, digests are
	// verified, and files and indexes are kept for the next job of the same user. A preset has its own name here.
	Registry string `json:"registry,omitempty" yaml:"registry" words:"go npm pypi cargo debian" without:"none" example:"npm"`
	// With `registry`: versions that were published more recently are not there yet.
	//
	// Not for `debian`, which does not tell.
	MinAge time.Duration `json:"min_age,omitempty" yaml:"min_age" form:"age" min:"1m" max:"366d" without:"none" example:"7d"`
}

// Bytes bound what a job or the jobs of a session may transfer. A zero field bounds nothing.
type Bytes struct {
	// What a job, or the jobs of a session together, may send to hosts.
	Up int64 `json:"up,omitempty" yaml:"up" form:"size" min:"1KiB" max:"1024TiB" without:"no bound" example:"50MiB"`
	// What they may receive.
	Down int64 `json:"down,omitempty" yaml:"down" form:"size" min:"1KiB" max:"1024TiB" without:"no bound" example:"2GiB"`
}

// ErrMalformed is returned by Decode for what Encode does not write.
var ErrMalformed = errors.New("malformed network rules")

// Encode checks r and returns its JSON, at most MaxSize bytes on one line.
func Encode(r *Rules) (json.RawMessage, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("the network rules have %d bytes, the maximum is %d: use fewer or shorter entries", len(data), MaxSize)
	}
	return data, nil
}

// Decode returns the Rules whose JSON is data, and checks them. It accepts what Encode writes, in no other spelling.
func Decode(data []byte) (*Rules, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes, the maximum is %d", ErrMalformed, len(data), MaxSize)
	}
	r := new(Rules)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// encoding/json accepts repeated keys, keys in another case and unknown ones; none of them survives this.
	again, err := Encode(r)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data) {
		return nil, fmt.Errorf("%w: not in the spelling of Encode", ErrMalformed)
	}
	return r, nil
}
