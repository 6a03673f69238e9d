package packages

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"corral/policy/network"
)

// A Class says how what a path leads to changes.
type Class int

const (
	// Other is what the package knows nothing about.
	Other Class = iota
	// Index changes: it says which versions or files there are.
	Index
	// Current is an index that clients compare with others, so it must be asked for again each time.
	Current
	// File never changes.
	File
)

// An Item is what a path of a registry leads to.
type Item struct {
	Class Class
	Name  string // what it is about, for people
	// For a File: the path, at the same host, of the index that has its digest or its time of publication; "" if none has.
	Index string
	// For a File: the digest in its own path; zero if there is none.
	Digest Digest
	// For a File: clients verify it by other means than an index of the registry, so it may be kept without a known digest.
	Verified bool
	// It has no version that could be too young.
	Ageless bool
}

// Classify returns what a decoded path leads to.
func Classify(kind, path string) Item {
	switch kind {
	case network.Go:
		return classifyGo(path)
	case network.NPM:
		return classifyNPM(path)
	case network.PyPI:
		return classifyPyPI(path)
	case network.Cargo:
		return classifyCargo(path)
	case network.Debian:
		return classifyDebian(path)
	}
	return Item{}
}

// A Document is an index as a registry sent it.
type Document struct {
	URL  *url.URL // where it was requested
	Type string   // its Content-Type
	Body []byte
}

// Options say how an index is read.
type Options struct {
	// Versions published after Before are left out, and so are those of unknown age. Zero: nothing is left out.
	Before time.Time
	// HTML asks for the index of PyPI as HTML.
	HTML bool
	// Download is where the registry of cargo has its files: the `dl` of its config.json. "" if it is unknown.
	Download string
	// Published returns when versions of a module of Go were published, zero for those that are unknown. It is needed with Before.
	Published func(versions []string) []time.Time
}

// A Fact is what an index says about a file.
type Fact struct {
	Address   string // see Address
	Digest    Digest // zero if it does not say
	Published time.Time
}

// A Reading is an index as clients get it, and what it says.
type Reading struct {
	Body  []byte
	Type  string // its Content-Type
	Facts []Fact
	// Download is what the config.json of a registry of cargo says.
	Download string
}

var (
	// ErrMalformed is returned for what is not an index of the kind.
	ErrMalformed = errors.New("not an index of this kind of registry")
	// ErrNoTimes is returned for an index that does not say of any version when it was published, if Before is set.
	ErrNoTimes = errors.New("the index does not say when versions were published, so none is known to be old enough for `min_age`")
	// ErrYoung is returned for an index of one version that is too young.
	ErrYoung = errors.New("it was published more recently than `min_age` allows")
)

func malformed(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, values...))
}

// Read reads the index that Classify said is at the path of d.
func Read(kind string, d Document, o Options) (Reading, error) {
	html := kind == network.PyPI && !isSimpleJSON(d)
	lines := kind == network.Cargo && lastSegment(d.URL.Path) != cargoConfig // decoded one by one, and denser
	if !html && !lines && crowded(d.Body) {
		return Reading{}, malformed("it has more values than its size allows")
	}
	switch kind {
	case network.Go:
		return readGo(d, o)
	case network.NPM:
		return readNPM(d, o)
	case network.PyPI:
		return readPyPI(d, o)
	case network.Cargo:
		return readCargo(d, o)
	}
	return Reading{}, malformed("no document of %s is read as a whole", kind)
}

// MaxAddress is the length of an Address at most, in bytes.
const MaxAddress = 2048

// Address returns the one spelling of a URL by which facts are found, "" if it cannot be that of a file.
func Address(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	default:
		return ""
	}
	a := u.Scheme + "://" + host + (&url.URL{Path: u.Path}).EscapedPath()
	if u.RawQuery != "" || u.User != nil || host == "" || len(a) > MaxAddress {
		return ""
	}
	return a
}

// addressOf returns the address of a reference in a document.
func (d Document) addressOf(reference string) string {
	if reference == "" || len(reference) > MaxAddress {
		return ""
	}
	u, err := d.URL.Parse(reference)
	if err != nil {
		return ""
	}
	u.Fragment, u.RawFragment = "", ""
	return Address(u)
}

// admits reports whether a version that was published at a time is in the index.
func (o Options) admits(published time.Time) bool {
	return o.Before.IsZero() || !published.IsZero() && !published.After(o.Before)
}

// parseTime reads a time as RFC 3339 has it; zero if it is none.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC() // other zones take memory
}

// lastSegment returns what follows the last slash.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
