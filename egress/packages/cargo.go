package packages

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"corral/internal/lazyregexp"
)

var (
	sparsePath = lazyregexp.New(`/(?:[12]|3/[^/]|[^/]{2}/[^/]{2})/([A-Za-z0-9_-]+)$`)
	cratePath  = lazyregexp.New(`/([A-Za-z0-9_-]+)/(?:([0-9][^/]*)/download|[A-Za-z0-9_-]+-[0-9][^/]*\.crate)$`)
)

const cargoConfig = "config.json"

// maxVersion bounds what the index has about a version, in bytes: decoded, it can take thirty times that.
const maxVersion = 256 << 10

// classifyCargo knows the sparse index and the usual paths of crates. Other paths of crates are known by facts.
func classifyCargo(path string) Item {
	if m := cratePath().FindStringSubmatch(path); m != nil {
		name := lastSegment(path)
		if m[2] != "" {
			name = m[1] + "-" + m[2] + ".crate"
		}
		return Item{Class: File, Name: name}
	}
	if lastSegment(path) == cargoConfig {
		return Item{Class: Index, Name: cargoConfig, Ageless: true}
	}
	if m := sparsePath().FindStringSubmatch(path); m != nil {
		return Item{Class: Index, Name: m[1]}
	}
	return Item{}
}

// CargoConfig returns the path of the config.json of the index that a path belongs to, "" if it is not in an index.
func CargoConfig(path string) string {
	if at := sparsePath().FindStringIndex(path); at != nil {
		return path[:at[0]] + "/" + cargoConfig
	}
	return ""
}

// readCargo reads the versions of a crate, one on each line, or the configuration of the index.
func readCargo(d Document, o Options) (Reading, error) {
	r := Reading{Body: d.Body, Type: "text/plain; charset=utf-8"}
	if lastSegment(d.URL.Path) == cargoConfig {
		var all object
		if err := json.Unmarshal(d.Body, &all); err != nil {
			return Reading{}, malformed("%v", err)
		}
		r.Type, r.Download = "application/json", stringOf(all["dl"])
		return r, nil
	}
	left := make([]byte, 0, len(d.Body))
	lines, known := 0, false
	for line := range bytes.Lines(d.Body) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if len(line) > maxVersion {
			return Reading{}, malformed("a version has more than %d KiB", maxVersion>>10)
		}
		var version object
		if err := json.Unmarshal(line, &version); err != nil {
			return Reading{}, malformed("%v", err)
		}
		lines++
		published := parseTime(stringOf(version["pubtime"]))
		known = known || !published.IsZero()
		sum := stringOf(version["cksum"])
		address := crateAddress(d, o.Download, stringOf(version["name"]), stringOf(version["vers"]), sum)
		r.learn(d, Fact{address, digestOf("sha256", sum), published})
		if o.admits(published) {
			left = append(append(left, line...), '\n')
		}
	}
	switch {
	case o.Before.IsZero():
	case lines > 0 && !known:
		return Reading{}, ErrNoTimes
	default:
		r.Body = left
	}
	return r, nil
}

// crateAddress returns where a crate is, as the `dl` of the index says.
func crateAddress(d Document, dl, name, version, sum string) string {
	if dl == "" || name == "" || version == "" {
		return ""
	}
	prefix := cratePrefix(name)
	replaced := strings.NewReplacer("{crate}", url.PathEscape(name), "{version}", url.PathEscape(version), "{prefix}", prefix,
		"{lowerprefix}", strings.ToLower(prefix), "{sha256-checksum}", url.PathEscape(sum)).Replace(dl)
	if replaced == dl {
		replaced += "/" + url.PathEscape(name) + "/" + url.PathEscape(version) + "/download"
	}
	return d.addressOf(replaced)
}

// cratePrefix returns the directory of a crate in an index.
func cratePrefix(name string) string {
	switch n := len(name); n {
	case 0:
		return ""
	case 1, 2:
		return string(rune('0' + n))
	case 3:
		return "3/" + url.PathEscape(name[:1])
	}
	return url.PathEscape(name[:2]) + "/" + url.PathEscape(name[2:4])
}
