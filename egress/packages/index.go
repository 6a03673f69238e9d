package packages

import (
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

	"corral/egress/store"
	"corral/policy/network"
)

// maxIndex bounds an index, in bytes.
const maxIndex = 64 << 20

// A class has the indexes up to a size. Reading one takes more memory than that: for the index, for what the job gets of it, and for what
// is decoded at once, which Read bounds.
type class struct {
	size   int // bytes of an index
	most   int // that are read at once
	memory int // bytes that reading one takes
}

// The classes of indexes. All permissions together are for less than maxMemory bytes, half of what the process may have.
var classes = [...]class{
	{64 << 10, 16, 448 << 10},
	{1 << 20, 4, 6656 << 10},
	{4 << 20, 1, 24 << 20},
	{maxIndex, 1, 190 << 20}, // also indexes of packages of Debian that are decompressed, which takes 64 MiB
}

// inner is for indexes that are read for another one, so that none waits for one that waits for it.
var inner = classes[0]

// maxMemory bounds the memory of all indexes that are read at once, in bytes.
const maxMemory = 256 << 20

// permits has an element for each index of a class that is read.
type permits chan struct{}

func (c class) permits() permits { return make(permits, c.most) }

const (
	// indexTimeout is how long the registry may take to send an index.
	indexTimeout = 2 * time.Minute
	// writeTimeout is how long a job may take to read one, for which others wait.
	writeTimeout = 30 * time.Second
)

// A document is an index of the registry.
type document struct {
	Document
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
	o := Options{Before: p.before(), Published: func(versions []string) []time.Time { return p.times(ctx, versions) }}
	if p.item.Ageless {
		o.Before = time.Time{}
	}
	o.HTML = p.Kind == network.PyPI && !strings.Contains(p.in.Header.Get("Accept"), SimpleJSON)
	read, err := p.read(ctx, d, o)
	if !errors.Is(err, ErrMalformed) {
		d.save()
	}
	switch {
	case errors.Is(err, ErrMalformed) && p.MinAge == 0:
		read = Reading{Body: d.Body, Type: d.Type} // nothing is known of it
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrNoTimes), errors.Is(err, ErrYoung):
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
func (p *pull) read(ctx context.Context, d *document, o Options) (Reading, error) {
	if p.Kind == network.Cargo {
		o.Download = p.download(ctx, d.URL)
	}
	r, err := Read(p.Kind, d.Document, o)
	p.facts.add(p.scope, r.Facts...)
	if r.Download != "" {
		p.facts.setDownload(p.scope, Address(d.URL), r.Download)
	}
	return r, err
}

// download returns where the files of a registry of cargo are, "" if it does not say.
func (p *pull) download(ctx context.Context, index *url.URL) string {
	path := CargoConfig(index.Path)
	config := *index
	config.Path, config.RawPath = path, ""
	if path == "" {
		return ""
	}
	if dl, known := p.facts.download(p.scope, Address(&config)); known {
		return dl
	}
	return p.readInner(ctx, &config, path).Download
}

// short reports whether the index is requested in its short form, which has no times.
func (p *pull) short() bool {
	enough := p.item.Class == File || strings.Contains(p.in.Header.Get("Accept"), "vnd.npm.install-v1")
	return p.Kind == network.NPM && p.MinAge == 0 && enough
}

// learn reads the index at an escaped path for what it says about the file.
func (p *pull) learn(path string) error {
	defer p.leave()
	ctx, cancel := context.WithTimeout(p.in.Context(), indexTimeout)
	defer cancel()
	u, err := p.url(path)
	if err != nil {
		return err
	}
	d, err := p.document(ctx, path, Classify(p.Kind, u.Path), p.short(), p.most)
	if err != nil {
		closeAnswer(err)
		return err
	}
	if _, err := p.read(ctx, d, Options{}); err != nil {
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
			list[i] = p.timeOf(ctx, InfoPath(p.in.URL.Path, version))
		})
	}
	work.Wait()
	return list
}

// timeOf returns what the .info at a path says.
func (p *pull) timeOf(ctx context.Context, path string) time.Time {
	u := &url.URL{Scheme: p.Scheme, Host: p.Host, Path: path}
	address := Address(u)
	if f, known := p.facts.get(p.scope, address); known || path == "" {
		return f.Published
	}
	p.readInner(ctx, u, path)
	f, _ := p.facts.get(p.scope, address)
	return f.Published
}

// readInner reads an index for another one.
func (p *pull) readInner(ctx context.Context, u *url.URL, path string) Reading {
	release, err := p.inner.acquire(ctx)
	if err != nil {
		return Reading{}
	}
	defer release()
	d, err := p.document(ctx, u.EscapedPath(), Classify(p.Kind, path), false, int64(inner.size))
	if err != nil {
		closeAnswer(err)
		return Reading{}
	}
	r, err := p.read(ctx, d, Options{})
	if err == nil {
		d.save()
	}
	return r
}

// accepted returns what is requested as an index.
func accepted(kind string, short bool) string {
	switch {
	case kind == network.PyPI:
		return SimpleJSON + ", text/html;q=0.5"
	case kind == network.NPM && short:
		return "application/vnd.npm.install-v1+json, application/json;q=0.8"
	case kind == network.NPM:
		return "application/json"
	}
	return "*/*"
}

// document returns what is at an escaped path: what is kept while it is fresh, else what the registry has, and what is kept if the
// registry cannot be reached. The error is a *statusError for another answer of the registry, whose body the caller closes.
func (p *pull) document(ctx context.Context, path string, item Item, short bool, limit int64) (*document, error) {
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
	if kept != nil && (item.Class == File || age < fresh) {
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
	again := func() (*http.Response, error) { return p.get(ctx, path, accepted(p.Kind, short), encoding, nil) }
	reply, body, err := p.receive(ctx, reply, limit, again)
	if err != nil {
		return nil, err
	}
	d := &document{Document: Document{URL: u, Type: reply.Header.Get("Content-Type"), Body: body}}
	d.save = func() {
		p.save(d, store.Entry{
			Key: key, Kind: p.Kind, Host: p.Host, Name: item.Name, Type: d.Type, Tag: reply.Header.Get("ETag"),
			Date: reply.Header.Get("Last-Modified"), Index: item.Class != File, Checked: p.now().Unix(),
		})
	}
	return d, nil
}

// receive reads a response, and requests it again if it has to wait for memory.
func (p *pull) receive(
	ctx context.Context, reply *http.Response, limit int64, again func() (*http.Response, error),
) (*http.Response, []byte, error) {
	for {
		if reply.StatusCode != http.StatusOK {
			return nil, nil, &statusError{reply}
		}
		body, err := p.body(reply, limit)
		reply.Body.Close()
		if !errors.Is(err, errLarger) {
			return reply, body, err
		}
		if err := p.enter(ctx, p.class); err != nil {
			return nil, nil, err
		}
		if reply, err = again(); err != nil {
			return nil, nil, err
		}
	}
}

// closeAnswer closes the answer of the registry that an error is about. Each that stays open keeps one of the few connections to the host.
func closeAnswer(err error) {
	if status := (*statusError)(nil); errors.As(err, &status) {
		status.reply.Body.Close()
	}
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
	if limit > int64(inner.size) {
		if err := p.enter(ctx, classOf(e.Size)); err != nil {
			return nil, store.Entry{}
		}
	}
	body, err := p.readAll(store.Kept(file, e), limit, e.Size)
	if errors.Is(err, store.ErrDigest) {
		p.store.Drop(e.SHA256)
	}
	if err != nil {
		return nil, store.Entry{}
	}
	return &document{Document{URL: u, Type: e.Type, Body: body}, func() {}}, e
}

// save keeps a document. One that cannot be kept is requested again by the next job.
func (p *pull) save(d *document, e store.Entry) {
	if !p.keep {
		return
	}
	w := p.store.Create()
	defer w.Abort()
	_, _ = w.Write(d.Body) // Commit has the error
	e.SHA256 = fmt.Sprintf("%x", sha256.Sum256(d.Body))
	_ = w.Commit(e)
}

// body reads the body of a document, compressed or not.
func (p *pull) body(reply *http.Response, limit int64) ([]byte, error) {
	var from io.Reader = reply.Body
	size := reply.ContentLength
	switch encoding := reply.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(reply.Body)
		if err != nil {
			return nil, fmt.Errorf("an index of the registry: %w", err)
		}
		from, size = z, -1
	default:
		return nil, fmt.Errorf("the registry compresses an index with %.50q, which corral did not ask for", encoding)
	}
	return p.readAll(from, limit, size)
}

// readAll reads a document of a size, -1 if it is unknown, as far as memory allows. A request has permission for one class. If there
// is none at present for the class of its document, the error is errLarger: what was read would be memory of nobody, and what was not
// read would keep the connection from receiving what others read.
func (p *pull) readAll(from io.Reader, limit, size int64) ([]byte, error) {
	var b []byte
	if limit <= int64(inner.size) { // the caller has the permission
		end, err := readUpTo(&b, from, int(limit))
		return b, tooLarge(end, err, limit)
	}
	for at := max(p.class, classOf(size)); ; at++ {
		if !p.rise(at) {
			p.class = at
			return nil, errLarger
		}
		end, err := readUpTo(&b, from, int(min(int64(classes[at].size), limit)))
		if end || err != nil || int64(len(b)) > limit {
			return b, tooLarge(end, err, limit)
		}
	}
}

// classOf returns the class of an index of a size.
func classOf(size int64) int {
	at := 0
	for at+1 < len(classes) && int64(classes[at].size) < size {
		at++
	}
	return at
}

// errLarger is returned for a document that must be requested again, in a larger class.
var errLarger = errors.New("the index is larger than there is memory for at present")

// tooLarge returns the error of a document that was read, or has no end.
func tooLarge(end bool, err error, limit int64) error {
	if err != nil {
		return fmt.Errorf("an index of the registry: %w", err)
	}
	if !end {
		return fmt.Errorf("an index of the registry has more than %d MiB", limit>>20)
	}
	return nil
}

// enter waits for the permission of a class, without any other, and keeps it until the request ends.
func (p *pull) enter(ctx context.Context, class int) error {
	p.leave()
	release, err := p.permits[class].acquire(ctx)
	if err == nil {
		p.class, p.release = class, release
	}
	return err
}

// rise gets the permission of a class in place of that of a smaller one, unless it has it, and returns false if there is none at present.
func (p *pull) rise(class int) bool {
	if p.release != nil && p.class >= class {
		return true
	}
	select {
	case p.permits[class] <- struct{}{}:
		p.leave()
		p.class, p.release = class, func() { <-p.permits[class] }
		return true
	default:
		return false
	}
}

// leave gives the permission of the request back, if it has one.
func (p *pull) leave() {
	if p.release != nil {
		p.release()
	}
	p.release = nil
}

// readUpTo reads until there are more bytes than most, or to the end. A bytes.Buffer could have three times as much memory.
func readUpTo(b *[]byte, from io.Reader, most int) (end bool, err error) {
	for len(*b) <= most {
		if len(*b) == cap(*b) {
			*b = append(make([]byte, 0, min(max(2*cap(*b), 4096), most+1)), *b...)
		}
		n, err := from.Read((*b)[len(*b):cap(*b)])
		*b = (*b)[:len(*b)+n]
		if errors.Is(err, io.EOF) {
			return len(*b) <= most, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// acquire waits for permission to use memory.
func (of permits) acquire(ctx context.Context) (release func(), err error) {
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("too many large indexes are read at once: %w", ctx.Err())
	}
}
