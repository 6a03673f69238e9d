// Package packages answers requests of jobs to registries of packages: from a store where it can, and otherwise from the registry, whose
// answer it verifies and keeps for the next job of the same user.
//
// What a job can have an influence on is not kept. A request that is answered from the store, or kept in it, is made with headers of
// this package alone, so that no header of one job changes what another one gets; a request with credentials of the job's own is
// passed on and kept nowhere. What was requested with a secret of the operator is found again only by requests with that secret.
//
// A file is kept if an index of the registry or its own address says its digest, or if its clients verify it by other means: modules
// of Go by the checksum database, indexes of Debian by signatures. A file with another digest is cut off before its end, and not kept.
//
// With a minimum age, younger versions are left out of indexes, and their files are denied. What nobody knows the age of is denied.
//
// A registry is a host that an operator named, but what it sends is not trusted: it may be malformed, large or nested. What reads it
// (Classify, Read, ReadPackages) is pure and bounded: it returns facts about files, each at an address: the digest that the file must
// have, and when it was published. What is unknown stays unknown; nothing is guessed from a name.
package packages

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corral/egress/relay"
	"corral/egress/store"
	"corral/policy/network"
)

// How long an index is used without asking the registry, and how long if the registry cannot be reached.
const (
	fresh = 5 * time.Minute
	stale = 7 * 24 * time.Hour
)

// denied returns the error for a request that the rule does not allow, or whose answer must not be passed on.
func denied(format string, values ...any) error {
	return &relay.Denied{Why: fmt.Sprintf(format, values...)}
}

// A Cache answers requests. Its methods may be called concurrently.
type Cache struct {
	store *store.Store // nil: nothing is kept
	facts *facts
	now   func() time.Time
	// The permissions to read indexes, which bound memory: by class, and for those that are read for another one.
	permits [len(classes)]permits
	inner   permits

	most int64 // bytes of an index; fewer in tests
}

// New returns a Cache that keeps files in a store; nil: it keeps nothing.
func New(s *store.Store) *Cache {
	cache := &Cache{store: s, facts: newFacts(), now: time.Now, most: maxIndex, inner: inner.permits()}
	for n, c := range classes {
		cache.permits[n] = c.permits()
	}
	return cache
}

// A Registry says what a request is for.
type Registry struct {
	Kind   string
	MinAge time.Duration
	Rule   string // what its indexes say applies to other hosts of the same rule
	Scheme string
	Host   string // with the port, unless it is the scheme's own
	// Secret is the name of the secret that the request has, and Header the header that has it; "": it has none.
	Secret, Header string
	// Login is the user and password that the job has the secret in, without the secret; "" if the job chose nothing of the header.
	Login string
	// Guarded has the names of the secrets that are looked for in responses of the host: in what was requested without that, they
	// could be.
	Guarded string
}

// A pull is one request.
type pull struct {
	*Cache
	Registry
	in      *http.Request
	host    http.RoundTripper
	own     http.Header // credentials of the job's own
	scope   string      // of facts: the rule, and what the job has an influence on the registry with
	item    Item
	address string // see Address
	keep    bool   // it may be answered from the store, and kept
	class   int    // of the index that is read, or is to be waited for
	release func() // gives the permission of the class back; nil: it has none
}

// Serve answers an allowed request with GET or HEAD. host makes requests of the registry. See relay.Puller for the error.
func (c *Cache) Serve(w http.ResponseWriter, in *http.Request, r Registry, host http.RoundTripper) error {
	p := &pull{Cache: c, Registry: r, in: in, host: host, own: credentials(in.Header, r)}
	p.keep = c.store != nil && len(p.own) == 0
	p.scope = scopeOf(r, p.own)
	defer p.leave()
	p.item = Classify(r.Kind, in.URL.Path)
	p.address = Address(&url.URL{Scheme: r.Scheme, Host: r.Host, Path: in.URL.Path, RawQuery: in.URL.RawQuery})
	if p.address == "" {
		p.item = Item{}
	} else if _, known := c.facts.get(p.scope, p.address); known && p.item.Class != File {
		p.item = Item{Class: File, Name: in.URL.Path[strings.LastIndexByte(in.URL.Path, '/')+1:]}
	}
	switch {
	case p.item.Class == Other && r.MinAge > 0:
		return denied("the rule has `min_age`, and corral does not know how old what is at %.200q is", in.URL.Path)
	case p.item.Class == Other:
		return relay.ErrPass
	case p.item.Class == Index:
		if in.Method == http.MethodHead {
			return relay.ErrPass
		}
		return p.serveIndex(w)
	}
	if err := p.checkAge(); err != nil {
		return err
	}
	if in.Method == http.MethodHead {
		return relay.ErrPass
	}
	return p.serveFile(w)
}

// credentials returns the headers of a request that have credentials which are not the operator's.
func credentials(header http.Header, r Registry) http.Header {
	own := http.Header{}
	for name, values := range header {
		if r.Secret != "" && name == http.CanonicalHeaderKey(r.Header) || strings.Join(values, "") == "" {
			continue
		}
		lower := strings.ToLower(name)
		for _, part := range []string{"authorization", "cookie", "token", "api-key", "apikey", "credential", "password"} {
			if strings.Contains(lower, part) {
				own[name] = values
			}
		}
	}
	return own
}

// scopeOf returns for which requests facts apply. What a registry says to a job's own user, about any file, is nothing that other
// jobs' files are measured by.
func scopeOf(r Registry, own http.Header) string {
	scope := r.Rule + "\n" + r.Login
	if len(own) > 0 {
		scope += "\n" + fmt.Sprint(own) // sorted by names; facts have its hash alone
	}
	return scope
}

// key returns the key of what is at an escaped path. A variant is a form of an index that depends on the request.
func (p *pull) key(path, variant string) string {
	with := p.Secret
	if p.Login != "" {
		with = fmt.Sprintf("%s %x", with, sha256.Sum256([]byte(p.Login)))
	}
	return with + " " + p.Guarded + " " + variant + " " + p.Scheme + "://" + p.Host + path
}

// url returns the URL of an escaped path.
func (p *pull) url(path string) (*url.URL, error) {
	u, err := url.Parse(p.Scheme + "://" + p.Host + path)
	if err != nil {
		return nil, fmt.Errorf("the address of a package: %w", err)
	}
	return u, nil
}

// before returns Options.Before.
func (p *pull) before() time.Time {
	if p.MinAge == 0 {
		return time.Time{}
	}
	return p.now().Add(-p.MinAge)
}

// checkAge denies a file that is too young, or whose age nobody knows.
func (p *pull) checkAge() error {
	if p.MinAge == 0 || p.item.Ageless {
		return nil
	}
	published := p.published()
	if published.IsZero() && p.item.Index != "" {
		if err := p.learn((&url.URL{Path: p.item.Index}).EscapedPath()); err != nil {
			return err
		}
		published = p.published()
	}
	age := network.FormatAge(p.MinAge)
	if published.IsZero() {
		return denied("nobody knows when %.200q was published, and the rule has `min_age: %s`: the index that names it must be requested first", p.item.Name, age)
	}
	if published.After(p.before()) {
		return denied("%.200q was published on %s, and the rule has `min_age: %s`", p.item.Name, published.UTC().Format("2006-01-02 at 15:04 UTC"), age)
	}
	return nil
}

// published returns when the file was published, zero if that is unknown.
func (p *pull) published() time.Time {
	if f, _ := p.facts.get(p.scope, p.address); !f.Published.IsZero() {
		return f.Published
	}
	if !p.keep {
		return time.Time{}
	}
	e, content, ok := p.store.Get(p.key(p.in.URL.EscapedPath(), ""))
	if !ok {
		return time.Time{}
	}
	content.Close()
	if e.Published == 0 {
		return time.Time{}
	}
	return time.Unix(e.Published, 0)
}
