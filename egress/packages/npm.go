package packages

import (
	"encoding/json"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// classifyNPM knows /NAME, /@SCOPE/NAME and /NAME/-/NAME-VERSION.tgz, below any prefix.
func classifyNPM(path string) Item {
	if name, file, ok := strings.Cut(path, "/-/"); ok {
		if name == "" || !strings.HasSuffix(file, ".tgz") {
			return Item{}
		}
		return Item{Class: File, Name: lastSegment(file), Index: name}
	}
	last := lastSegment(path)
	if last == "" || last == "-" || strings.HasSuffix(last, ".tgz") {
		return Item{}
	}
	name := last
	if before := lastSegment(strings.TrimSuffix(path, "/"+last)); strings.HasPrefix(before, "@") {
		name = before + "/" + last
	}
	return Item{Class: Index, Name: name}
}

// readNPM reads all versions of a package.
func readNPM(d Document, o Options) (Reading, error) {
	var all, versions, times object
	var tags map[string]string
	if err := json.Unmarshal(d.Body, &all); err != nil {
		return Reading{}, malformed("%v", err)
	}
	if err := json.Unmarshal(all["versions"], &versions); err != nil || versions == nil {
		return Reading{}, malformed("it has no versions")
	}
	_ = json.Unmarshal(all["time"], &times)
	_ = json.Unmarshal(all["dist-tags"], &tags)
	if !o.Before.IsZero() && len(times) == 0 && len(versions) > 0 {
		return Reading{}, ErrNoTimes
	}
	r := Reading{Body: d.Body, Type: "application/json"}
	if !isFull(d) {
		r.Type = abbreviated
	}
	for version, about := range versions {
		published := parseTime(stringOf(times[version]))
		r.learn(d, npmFact(d, about, published))
		if !o.admits(published) {
			delete(versions, version)
			delete(times, version)
		}
	}
	if o.Before.IsZero() {
		return r, nil
	}
	repairTags(tags, versions)
	delete(times, "modified") // when a version was published that is not there yet
	// Entries of versions that were removed by their publisher tell of what is not there, too.
	for key, value := range times {
		if t := parseTime(stringOf(value)); key != "created" && t.After(o.Before) {
			delete(times, key)
		}
	}
	for _, key := range []string{"readme", "readmeFilename", "_attachments"} {
		delete(all, key) // of the newest version
	}
	for _, key := range []string{"time", "dist-tags"} {
		all[key] = nil // if there was none
	}
	r.Body = appendObject(make([]byte, 0, len(d.Body)), all, map[string]func([]byte) []byte{
		"versions":  func(b []byte) []byte { return appendObject(b, versions, nil) },
		"time":      func(b []byte) []byte { return appendObject(b, times, nil) },
		"dist-tags": func(b []byte) []byte { return append(b, encode(tags)...) },
	})
	return r, nil
}

// abbreviated is the Content-Type of an index without times.
const abbreviated = "application/vnd.npm.install-v1+json"

func isFull(d Document) bool { return !strings.HasPrefix(d.Type, abbreviated) }

// npmFact returns what a version says about its file.
func npmFact(d Document, about raw, published time.Time) Fact {
	dist := objectOf(objectOf(about)["dist"])
	digest := parseIntegrity(stringOf(dist["integrity"]))
	if digest == (Digest{}) {
		digest = digestOf("sha1", stringOf(dist["shasum"]))
	}
	return Fact{d.addressOf(stringOf(dist["tarball"])), digest, published}
}

// repairTags removes tags of versions that are not there. latest, without which nothing is installed, becomes the highest version
// that is not above it and no preview.
func repairTags(tags map[string]string, versions object) {
	for tag, version := range tags {
		if versions[version] != nil {
			continue
		}
		delete(tags, tag)
		if tag != "latest" {
			continue
		}
		best := ""
		for v := range versions {
			if s := "v" + v; semver.Prerelease(s) == "" && semver.Compare(s, "v"+version) <= 0 && semver.Compare(s, best) > 0 {
				best = s
			}
		}
		if best != "" {
			tags[tag] = best[1:]
		}
	}
}
