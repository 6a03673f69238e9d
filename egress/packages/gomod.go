package packages

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// classifyGo knows the protocol of module proxies, and that of checksum databases, also through a proxy.
func classifyGo(path string) Item {
	if at := strings.LastIndex(path, "/@v/"); at > 0 {
		return classifyVersion(path[:at], path[at+len("/@v/"):])
	}
	if mod, ok := strings.CutSuffix(path, "/@latest"); ok && mod != "" {
		return Item{Class: Index, Name: strings.TrimPrefix(mod, "/") + "@latest"}
	}
	database := path
	if rest, ok := strings.CutPrefix(path, "/sumdb/"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		database = "/" + rest
	}
	name := "checksums " + strings.TrimPrefix(database, "/")
	switch {
	case strings.HasPrefix(database, "/tile/"):
		// Clients prove that a tile is of the one tree that everybody sees.
		return Item{Class: File, Name: name, Verified: true, Ageless: true}
	case strings.HasPrefix(database, "/lookup/"), database == "/latest", database == "/supported":
		return Item{Class: Index, Name: name, Ageless: true}
	}
	return Item{}
}

// classifyVersion classifies a file of a module. Versions that are branches or commits change.
func classifyVersion(mod, file string) Item {
	if file == "list" {
		return Item{Class: Index, Name: strings.TrimPrefix(mod, "/") + "@list"}
	}
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 || strings.Contains(file, "/") || !slices.Contains([]string{".info", ".mod", ".zip"}, file[dot:]) {
		return Item{}
	}
	item := Item{Class: Index, Name: strings.TrimPrefix(mod, "/") + "@" + file}
	if !isVersion(file[:dot]) {
		if file[dot:] != ".info" {
			return Item{} // clients ask for the version first
		}
		return item
	}
	// go.sum or the checksum database has the hashes that the client compares.
	item.Class, item.Verified, item.Index = File, true, infoPath(mod, file[:dot])
	return item
}

// isVersion reports whether an escaped version is an exact one.
func isVersion(escaped string) bool {
	v, err := module.UnescapeVersion(escaped)
	v = strings.TrimSuffix(v, "+incompatible")
	return err == nil && semver.IsValid(v) && semver.Canonical(v) == v
}

func infoPath(mod, escaped string) string { return mod + "/@v/" + escaped + ".info" }

// InfoPath returns the path of what a list of versions, at a path, has about one of them.
func InfoPath(list, version string) string {
	escaped, err := module.EscapeVersion(version)
	if err != nil {
		return ""
	}
	return infoPath(strings.TrimSuffix(list, "/@v/list"), escaped)
}

// maxListed is how many versions of a list are asked for their age: the highest ones.
const maxListed = 256

// readGo reads a list of versions, or when one of them was published.
func readGo(d Document, o Options) (Reading, error) {
	path := d.URL.Path
	r := Reading{Body: d.Body, Type: "text/plain; charset=utf-8"}
	switch {
	case strings.HasSuffix(path, "/@v/list"):
		if !o.Before.IsZero() {
			r.Body = olderVersions(d.Body, o)
		}
		return r, nil
	case !strings.HasSuffix(path, ".info") && !strings.HasSuffix(path, "/@latest"):
		return r, nil // of the checksum database
	}
	var all object
	if err := json.Unmarshal(d.Body, &all); err != nil {
		return Reading{}, malformed("%v", err)
	}
	published := parseTime(stringOf(all["Time"]))
	r.Type = "application/json"
	base, _ := strings.CutSuffix(path, ".info")
	for _, suffix := range []string{".info", ".mod", ".zip"} {
		if !isVersion(lastSegment(base)) {
			break // a branch, whose files have the name of a version
		}
		at := *d.URL
		at.Path, at.RawPath = base+suffix, ""
		r.Facts = append(r.Facts, Fact{Address: Address(&at), Published: published})
	}
	switch {
	case o.admits(published):
		return r, nil
	case published.IsZero():
		return r, ErrNoTimes
	}
	return r, ErrYoung
}

// olderVersions returns the list without versions that are too young. Those that are not asked for are left out as well.
func olderVersions(body []byte, o Options) []byte {
	var versions []string
	for line := range bytes.Lines(body) {
		if v := string(bytes.TrimSpace(line)); semver.IsValid(v) {
			versions = append(versions, v)
		}
	}
	semver.Sort(versions)
	slices.Reverse(versions)
	versions = versions[:min(len(versions), maxListed)]
	if o.Published == nil {
		return nil
	}
	var left []byte
	for i, published := range o.Published(versions) {
		if o.admits(published) {
			left = append(append(left, versions[i]...), '\n')
		}
	}
	return left
}
