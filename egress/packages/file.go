package packages

import (
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"corral/egress/store"
	"corral/policy/network"
)

// serveFile answers a request for a file, or for an index that clients verify.
func (p *pull) serveFile(w http.ResponseWriter) error {
	path := p.in.URL.EscapedPath()
	key := p.key(path, "")
	digest := p.digest()
	var old *store.Entry
	var content *os.File
	if p.keep {
		if e, file, ok := p.store.Get(key); ok {
			defer file.Close()
			old, content = &e, file
		}
	}
	current := p.item.Class == Current
	if old != nil && !current {
		// The index may say another digest than when the file was kept, or a stronger one with which it was not verified.
		if digest == (Digest{}) || ParseDigest(old.Digest) == digest {
			return p.serveKept(w, *old, content)
		}
		old = nil
	}
	if digest == (Digest{}) && p.item.Index != "" && !p.item.Verified && p.keep {
		_ = p.learn((&url.URL{Path: p.item.Index}).EscapedPath()) // without it, the file is passed on and not kept
		digest = p.digest()
	}
	reply, err := p.get(p.in.Context(), path, "*/*", "identity", old)
	if old != nil && p.now().Sub(time.Unix(old.Checked, 0)) < stale && unreachable(reply, err) {
		closeBody(reply)
		return p.serveKept(w, *old, content)
	}
	if err != nil {
		return err
	}
	if old != nil && reply.StatusCode == http.StatusNotModified {
		closeBody(reply)
		p.store.Renew(key, p.now())
		return p.serveKept(w, *old, content)
	}
	return p.pass(w, reply, digest, key)
}

// digest returns what the file must hash to, zero if that is unknown.
func (p *pull) digest() Digest {
	if p.item.Digest != (Digest{}) {
		return p.item.Digest
	}
	f, _ := p.facts.get(p.scope, p.address)
	return f.Digest
}

// serveKept answers with what is kept.
func (p *pull) serveKept(w http.ResponseWriter, e store.Entry, content io.Reader) error {
	check := store.Kept(content, e)
	check.Done = func() error { return p.readPackages(e.Key, e.SHA256) }
	describe(w, e.Type, e.Size)
	_, err := io.Copy(w, &ongoing{check, p.in.Context()})
	if errors.Is(err, store.ErrDigest) {
		p.store.Drop(e.SHA256) // the next request gets it from the registry
	}
	return err
}

// An ongoing reader fails when its request is ended, because the rules do not allow it any more.
type ongoing struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (o *ongoing) Read(b []byte) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	return o.Reader.Read(b)
}

// pass answers with what the registry sends, verifies it if its digest is known, and keeps it if it may be.
func (p *pull) pass(w http.ResponseWriter, reply *http.Response, digest Digest, key string) error {
	if reply.StatusCode != http.StatusOK {
		return answer(w, reply)
	}
	defer reply.Body.Close()
	encoding := reply.Header.Get("Content-Encoding")
	var k *store.Writer
	if p.keep && encoding == "" && (digest != Digest{} || p.item.Verified || p.item.Class == Current) {
		k = p.store.Create()
		defer k.Abort()
	}
	var theirs hash.Hash
	if digest != (Digest{}) {
		theirs = digest.New()
	}
	body := io.Reader(reply.Body)
	if k != nil {
		body = io.TeeReader(reply.Body, k)
	}
	check := store.NewCheck(body, theirs, digest.Sum)
	check.Done = func() error {
		e := store.Entry{
			Key: key, Kind: p.Kind, Host: p.Host, Name: p.item.Name, SHA256: check.SHA256(), Digest: digest.String(),
			Type: reply.Header.Get("Content-Type"), Tag: reply.Header.Get("ETag"), Date: reply.Header.Get("Last-Modified"),
			Index: p.item.Class == Current, Checked: p.now().Unix(),
		}
		if f, _ := p.facts.get(p.scope, p.address); !f.Published.IsZero() {
			e.Published = f.Published.Unix()
		}
		if k == nil || k.Commit(e) != nil { // the job gets its file in any case
			return nil
		}
		return p.readPackages(key, e.SHA256)
	}
	describe(w, reply.Header.Get("Content-Type"), reply.ContentLength)
	for _, name := range []string{"Content-Encoding", "ETag", "Last-Modified"} {
		if value := reply.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	_, err := io.Copy(w, check)
	if errors.Is(err, store.ErrDigest) {
		return denied("the registry sent %.200q with another digest than %s, which its index says: it was cut off", p.item.Name, short(digest))
	}
	return err
}

// short returns the beginning of a digest.
func short(d Digest) string {
	return d.Algorithm + ":" + hex.EncodeToString([]byte(d.Sum[:8])) + "…"
}

// readPackages reads an index of packages of Debian that is kept, before its client gets the end of it: it then requests the files.
func (p *pull) readPackages(key, sha256 string) error {
	if p.Kind != network.Debian || !HasPackages(p.in.URL.Path) {
		return nil
	}
	release, err := p.permits[len(classes)-1].acquire(p.in.Context())
	if err != nil {
		return err
	}
	defer release()
	if !p.facts.isNew(p.scope, p.address, sha256) {
		return nil
	}
	e, content, ok := p.store.Get(key)
	if !ok || e.SHA256 != sha256 {
		return nil
	}
	defer content.Close()
	at := &url.URL{Scheme: p.Scheme, Host: p.Host, Path: p.in.URL.Path}
	// Files of an index that cannot be read are passed on, and not kept.
	_ = ReadPackages(at, content, func(f Fact) { p.facts.add(p.scope, f) })
	return nil
}
