package pull

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"corral/egress/registry"
	"corral/egress/store"
	"corral/policy/network"
)

// Bounds of an index, in bytes, and of how many are read at once. Reading takes a few times the size of an index in memory, and a job
// can make thousands of requests at once.
const (
	maxIndex = 64 << 20
	smallest = 64 << 10 // indexes that need no permission, as those that are read for another one must not
	usual    = 1 << 20  // one of maxUsual
	maxUsual = 32
	middle   = 4 << 20 // one of maxSmall
	maxSmall = 8
	// maxPackages is how many indexes of packages of Debian are decompressed at once.
	maxPackages = 2
	// indexTimeout is how long the registry may take to send an index.
	indexTimeout = 2 * time.Minute
	// writeTimeout is how long a job may take to read one, for which others wait.
	writeTimeout = 30 * time.Second
)

// A document is an index of the registry.
type document struct {
	registry.Document
	save func() // keeps it
}

// serveIndex answers a request for an index.
func (p *pull) serveIndex(w http.ResponseWriter) error {
	ctx, cancel := context.WithTimeout(p.in.Context(), indexTimeout)
	defer cancel()
	path := p.in.URL.EscapedPath()
	d, err := p.document(ctx, path, p.item, p.short(), p.most)
	if status := (*statusError)(nil); errors.As(err, &status) {
		return answer(w, status.reply)
	}
	if err != nil {
		return err
	}
	o := registry.Options{Before: p.before(), Published: func(versions []string) []time.Time { return p.times(ctx, versions) }}
	if p.item.Ageless {
		o.Before = time.Time{}
	}
	o.HTML = p.Kind == network.PyPI && !strings.Contains(p.in.Header.Get("Accept"), registry.SimpleJSON)
	read, err := p.read(ctx, d, o)
	if !errors.Is(err, registry.ErrMalformed) {
		d.save()
	}
	switch {
	case errors.Is(err, registry.ErrMalformed) && p.MinAge == 0:
		read = registry.Reading{Body: d.Body, Type: d.Type} // nothing is known of it
	case errors.Is(err, registry.ErrMalformed), errors.Is(err, registry.ErrNoTimes), errors.Is(err, registry.ErrYoung):
		return denied("%s: %v, and the rule has `min_age: %s`", p.item.Name, err, network.FormatAge(p.MinAge))
	case err != nil:
		return err
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(read.Body))
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", "Accept")
	if p.in.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	describe(w, read.Type, int64(len(read.Body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // connections of the relay have one
	_, err = w.Write(read.Body)
	return err
}

// read reads an index, and remembers what it says.
func (p *pull) read(ctx context.Context, d *document, o registry.Options) (registry.Reading, error) {
	if p.Kind == network.Cargo {
		o.Download = p.download(ctx, d.URL)
	}
	r, err := registry.Read(p.Kind, d.Document, o)
	p.facts.add(p.scope, r.Facts...)
	if r.Download != "" {
		p.facts.setDownload(p.scope, registry.Address(d.URL), r.Download)
	}
	return r, err
}

// download returns where the files of a registry of cargo are, "" if it does not say.
func (p *pull) download(ctx context.Context, index *url.URL) string {
	path := registry.CargoConfig(index.Path)
	config := *index
	config.Path, config.RawPath = path, ""
	if path == "" {
		return ""
	}
	if dl, known := p.facts.download(p.scope, registry.Address(&config)); known {
		return dl
	}
	d, err := p.document(ctx, config.EscapedPath(), registry.Classify(p.Kind, path), false, smallest)
	if err != nil {
		return ""
	}
	r, err := p.read(ctx, d, registry.Options{})
	if err == nil {
		d.save()
	}
	return r.Download
}

// short reports whether the index is requested in its short form, which has no times.
func (p *pull) short() bool {
	enough := p.item.Class == registry.File || strings.Contains(p.in.Header.Get("Accept"), "vnd.npm.install-v1")
	return p.Kind == network.NPM && p.MinAge == 0 && enough
}

// learn reads the index at an escaped path for what it says about the file.
func (p *pull) learn(path string) error {
	ctx, cancel := context.WithTimeout(p.in.Context(), indexTimeout)
	defer cancel()
	u, err := p.url(path)
	if err != nil {
		return err
	}
	d, err := p.document(ctx, path, registry.Classify(p.Kind, u.Path), p.short(), p.most)
	if status := (*statusError)(nil); errors.As(err, &status) {
		status.reply.Body.Close()
	}
	if err != nil {
		return err
	}
	if _, err := p.read(ctx, d, registry.Options{}); err != nil {
		return denied("the index of %.200q: %v", p.item.Name, err)
	}
	d.save()
	return nil
}

// times returns when versions of a module of Go were published, as their .info says.
func (p *pull) times(ctx context.Context, versions []string) []time.Time {
	list := make([]time.Time, len(versions))
	limit := make(chan struct{}, 16)
	var work sync.WaitGroup
	for i, version := range versions {
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			list[i] = p.timeOf(ctx, registry.InfoPath(p.in.URL.Path, version))
		})
	}
	work.Wait()
	return list
}

// timeOf returns what the .info at a path says.
func (p *pull) timeOf(ctx context.Context, path string) time.Time {
	u := &url.URL{Scheme: p.Scheme, Host: p.Host, Path: path}
	address := registry.Address(u)
	if f, known := p.facts.get(p.scope, address); known || path == "" {
		return f.Published
	}
	d, err := p.document(ctx, u.EscapedPath(), registry.Classify(p.Kind, path), false, smallest)
	if err != nil {
		return time.Time{}
	}
	if _, err := p.read(ctx, d, registry.Options{}); err == nil {
		d.save()
	}
	f, _ := p.facts.get(p.scope, address)
	return f.Published
}

// accepted returns what is requested as an index.
func accepted(kind string, short bool) string {
	switch {
	case kind == network.PyPI:
		return registry.SimpleJSON + ", text/html;q=0.5"
	case kind == network.NPM && short:
		return "application/vnd.npm.install-v1+json, application/json;q=0.8"
	case kind == network.NPM:
		return "application/json"
	}
	return "*/*"
}

// document returns what is at an escaped path: what is kept while it is fresh, else what the registry has, and what is kept if the
// registry cannot be reached. The error is a *statusError for another answer of the registry, whose body the caller closes.
func (p *pull) document(ctx context.Context, path string, item registry.Item, short bool, limit int64) (*document, error) {
	u, err := p.url(path)
	if err != nil {
		return nil, err
	}
	variant := ""
	if short {
		variant = "short"
	}
	key := p.key(path, variant)
	kept, entry := p.kept(ctx, key, u, limit)
	age := p.now().Sub(time.Unix(entry.Checked, 0))
	if kept != nil && (item.Class == registry.File || age < fresh) {
		return kept, nil
	}
	encoding := "gzip"
	if p.Secret != "" || !p.keep {
		encoding = "identity" // a response in which nobody could look for the secret is refused
	}
	var old *store.Entry
	if kept != nil {
		old = &entry
	}
	reply, err := p.get(ctx, path, accepted(p.Kind, short), encoding, old)
	if kept != nil && age < stale && unreachable(reply, err) {
		closeBody(reply)
		return kept, nil
	}
	if err != nil {
		return nil, err
	}
	if kept != nil && reply.StatusCode == http.StatusNotModified {
		closeBody(reply)
		p.store.Renew(key, p.now())
		return kept, nil
	}
	if reply.StatusCode != http.StatusOK {
		return nil, &statusError{reply}
	}
	defer reply.Body.Close()
	body, err := p.body(ctx, reply, limit)
	if err != nil {
		return nil, err
	}
	d := &document{Document: registry.Document{URL: u, Type: reply.Header.Get("Content-Type"), Body: body}}
	d.save = func() {
		p.save(d, store.Entry{
			Key: key, Kind: p.Kind, Host: p.Host, Name: item.Name, Type: d.Type, Tag: reply.Header.Get("ETag"),
			Date: reply.Header.Get("Last-Modified"), Index: item.Class != registry.File, Checked: p.now().Unix(),
		})
	}
	return d, nil
}

func closeBody(reply *http.Response) {
	if reply != nil {
		reply.Body.Close()
	}
}

// kept returns the document that is kept at a key, nil if there is none.
func (p *pull) kept(ctx context.Context, key string, u *url.URL, limit int64) (*document, store.Entry) {
	if !p.keep {
		return nil, store.Entry{}
	}
	e, file, ok := p.store.Get(key)
	if !ok {
		return nil, store.Entry{}
	}
	defer file.Close()
	if e.Size > limit {
		return nil, store.Entry{}
	}
	body, err := p.readAll(ctx, store.Kept(file, e), limit)
	if errors.Is(err, store.ErrDigest) {
		p.store.Drop(e.SHA256)
	}
	if err != nil {
		return nil, store.Entry{}
	}
	return &document{registry.Document{URL: u, Type: e.Type, Body: body}, func() {}}, e
}

// save keeps a document. One that cannot be kept is requested again by the next job.
func (p *pull) save(d *document, e store.Entry) {
	if !p.keep {
		return
	}
	w, err := p.store.Create()
	if err != nil {
		return
	}
	defer w.Abort()
	if _, err := w.Write(d.Body); err != nil {
		return
	}
	e.SHA256 = fmt.Sprintf("%x", sha256.Sum256(d.Body))
	_ = w.Commit(e)
}

// body reads the body of a document, compressed or not.
func (p *pull) body(ctx context.Context, reply *http.Response, limit int64) ([]byte, error) {
	var from io.Reader = reply.Body
	switch encoding := reply.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(reply.Body)
		if err != nil {
			return nil, fmt.Errorf("an index of the registry: %w", err)
		}
		from = z
	default:
		return nil, fmt.Errorf("the registry compresses an index with %.50q, which corral did not ask for", encoding)
	}
	return p.readAll(ctx, from, limit)
}

// readAll reads a document, as far as memory allows: of those that are not small, some are read at once, and of large ones one.
func (p *pull) readAll(ctx context.Context, from io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	for _, part := range []struct {
		size int64
		of   chan struct{}
	}{{smallest, nil}, {usual, p.usual}, {middle, p.small}, {limit, p.large}} {
		if part.of != nil {
			if err := p.acquire(ctx, part.of); err != nil {
				return nil, err
			}
		}
		_, err := io.CopyN(&b, from, min(part.size, limit)-int64(b.Len())+1)
		if errors.Is(err, io.EOF) {
			return b.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("an index of the registry: %w", err)
		}
		if int64(b.Len()) > limit {
			break
		}
	}
	return nil, fmt.Errorf("an index of the registry has more than %d MiB", limit>>20)
}

// acquire waits for permission to use memory, until the request ends.
func (p *pull) acquire(ctx context.Context, of chan struct{}) error {
	select {
	case of <- struct{}{}:
		p.release = append(p.release, func() { <-of })
		return nil
	case <-ctx.Done():
		return fmt.Errorf("too many large indexes are read at once: %w", ctx.Err())
	}
}
