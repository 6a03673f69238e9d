package packages

import (
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"corral/internal/lazyregexp"
)

// SimpleJSON is the Content-Type of the index of PyPI that has times (PEP 691 and 700).
const SimpleJSON = "application/vnd.pypi.simple.v1+json"

var (
	simplePath = lazyregexp.New(`/\+?simple/([^/]+)/?$`)
	// pypiHash is the path of files.pythonhosted.org, which has the BLAKE2b of the file.
	pypiHash = lazyregexp.New(`/packages/([0-9a-f]{2})/([0-9a-f]{2})/([0-9a-f]{60})/[^/]+$`)
)

// classifyPyPI knows …/simple/NAME/ and files of distributions.
func classifyPyPI(path string) Item {
	if m := simplePath().FindStringSubmatch(path); m != nil {
		return Item{Class: Index, Name: m[1]}
	}
	item := Item{Class: File, Name: lastSegment(path)}
	if m := pypiHash().FindStringSubmatch(path); m != nil && !strings.HasSuffix(path, ".metadata") {
		item.Digest = digestOf("blake2b_256", m[1]+m[2]+m[3])
	}
	for _, suffix := range []string{".whl", ".tar.gz", ".zip", ".tar.bz2", ".egg", ".metadata"} {
		if strings.HasSuffix(path, suffix) {
			return item
		}
	}
	return Item{}
}

// A pypiFile is what an index says about a file.
type pypiFile struct {
	all       object
	name, url string
	hashes    map[string]string
	metadata  map[string]string // hashes; nil: there is none
	published time.Time
}

// readPyPI reads the files of a project.
func readPyPI(d Document, o Options) (Reading, error) {
	if !isSimpleJSON(d) {
		if !o.Before.IsZero() {
			return Reading{}, ErrNoTimes
		}
		return Reading{Body: d.Body, Type: "text/html; charset=utf-8", Facts: factsOfHTML(d)}, nil
	}
	var all object
	var list []raw
	if err := json.Unmarshal(d.Body, &all); err != nil {
		return Reading{}, malformed("%v", err)
	}
	if err := json.Unmarshal(all["files"], &list); err != nil {
		return Reading{}, malformed("its files: %v", err)
	}
	r := Reading{Type: SimpleJSON}
	var left []raw // not decoded: that takes ten times as much
	var names []string
	known := false
	for _, one := range list {
		f := newPyPIFile(objectOf(one))
		known = known || !f.published.IsZero()
		r.learn(d, f.facts(d)...)
		if o.admits(f.published) {
			left, names = append(left, one), append(names, f.name)
		}
	}
	if !o.Before.IsZero() && len(list) > 0 && !known {
		return Reading{}, ErrNoTimes
	}
	if o.HTML {
		r.Body, r.Type = writeHTML(left), "text/html; charset=utf-8"
		return r, nil
	}
	r.Body = d.Body
	if len(left) < len(list) {
		repairVersions(all, names)
		r.Body = appendObject(make([]byte, 0, len(d.Body)), all, map[string]func([]byte) []byte{
			"files": func(b []byte) []byte { return appendList(b, left) },
		})
	}
	return r, nil
}

func isSimpleJSON(d Document) bool { return strings.HasPrefix(d.Type, SimpleJSON) }

func newPyPIFile(all object) pypiFile {
	f := pypiFile{all: all, name: stringOf(all["filename"]), url: stringOf(all["url"]), published: parseTime(stringOf(all["upload-time"]))}
	_ = json.Unmarshal(all["hashes"], &f.hashes)
	for _, key := range []string{"core-metadata", "dist-info-metadata"} {
		var there bool
		if all[key] == nil || f.metadata != nil {
			continue
		}
		if json.Unmarshal(all[key], &f.metadata) != nil && json.Unmarshal(all[key], &there) == nil && there {
			f.metadata = map[string]string{}
		}
	}
	return f
}

// facts returns what the index says about a file and its metadata.
func (f pypiFile) facts(d Document) []Fact {
	address := d.addressOf(f.url)
	if address == "" {
		return nil
	}
	return []Fact{
		{address, strongest(f.hashes), f.published},
		{address + ".metadata", strongest(f.metadata), f.published},
	}
}

func strongest(hashes map[string]string) Digest {
	for _, algorithm := range []string{"sha512", "sha256", "blake2b_256"} {
		if d := digestOf(algorithm, hashes[algorithm]); d != (Digest{}) {
			return d
		}
	}
	return Digest{}
}

// repairVersions removes the versions that have no file any more.
func repairVersions(all object, files []string) {
	var versions []string
	if json.Unmarshal(all["versions"], &versions) != nil {
		return
	}
	versions = slices.DeleteFunc(versions, func(version string) bool {
		return !slices.ContainsFunc(files, func(name string) bool { return strings.Contains(name, "-"+version) })
	})
	all["versions"] = encode(versions)
}

// writeHTML writes an index for clients that read HTML alone (PEP 503).
func writeHTML(files []raw) []byte {
	b := []byte("<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.0\"></head><body>\n")
	attribute := func(name, value string) { b = fmt.Appendf(b, ` %s="%s"`, name, html.EscapeString(value)) }
	for _, one := range files {
		f := newPyPIFile(objectOf(one))
		to := f.url
		if sum := f.hashes["sha256"]; sum != "" {
			to += "#sha256=" + sum
		}
		b = append(b, "<a"...)
		attribute("href", to)
		if needs := stringOf(f.all["requires-python"]); needs != "" {
			attribute("data-requires-python", needs)
		}
		switch sum := f.metadata["sha256"]; {
		case sum != "":
			attribute("data-core-metadata", "sha256="+sum)
		case f.metadata != nil:
			attribute("data-core-metadata", "true")
		}
		var yanked bool
		if reason := stringOf(f.all["yanked"]); reason != "" {
			attribute("data-yanked", reason)
		} else if json.Unmarshal(f.all["yanked"], &yanked) == nil && yanked {
			attribute("data-yanked", "")
		}
		b = fmt.Appendf(b, ">%s</a><br>\n", html.EscapeString(f.name))
	}
	return append(b, "</body></html>\n"...)
}

// Links of an index in HTML. What looks like one and is none gives at most a digest that no file has.
var (
	anchor      = lazyregexp.New(`(?i)<a\s[^>]*>`)
	hrefValue   = lazyregexp.New(`(?i)\shref\s*=\s*(?:"([^"]*)"|'([^']*)')`)
	aboutHashed = lazyregexp.New(`(?i)\sdata-(?:core|dist-info)-metadata\s*=\s*["']sha256=([0-9a-f]{64})["']`)
)

func factsOfHTML(d Document) (facts []Fact) {
	for _, tag := range anchor().FindAll(d.Body, d.maxFactsOf()/2) {
		m := hrefValue().FindSubmatch(tag)
		if m == nil {
			continue
		}
		to, fragment, _ := strings.Cut(html.UnescapeString(string(m[1])+string(m[2])), "#")
		algorithm, sum, _ := strings.Cut(fragment, "=")
		address := d.addressOf(to)
		if address == "" {
			continue
		}
		if digest := digestOf(algorithm, sum); digest != (Digest{}) && algorithm != "sha1" {
			facts = append(facts, Fact{Address: address, Digest: digest})
		}
		if about := aboutHashed().FindSubmatch(tag); about != nil {
			facts = append(facts, Fact{Address: address + ".metadata", Digest: digestOf("sha256", string(about[1]))})
		}
	}
	return facts
}
