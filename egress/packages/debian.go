package packages

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/url"
	"path"
	"strings"

	"corral/internal/lazyregexp"
)

var (
	byHash   = lazyregexp.New(`/by-hash/(SHA256|SHA512)/([0-9a-f]+)$`)
	poolFile = lazyregexp.New(`\.(?:deb|udeb|ddeb|dsc|tar\.[a-z0-9]+|diff\.gz|orig\.tar\.[a-z0-9]+)$`)
)

// classifyDebian knows files by their hash, archives of packages, and the rest of dists.
func classifyDebian(p string) Item {
	name := lastSegment(p)
	if m := byHash().FindStringSubmatch(p); m != nil {
		at, _, _ := strings.Cut(p, "/by-hash/")
		_, suite, _ := strings.Cut(at, "/dists/")
		return Item{Class: File, Name: strings.Trim(suite+" "+name[:min(len(name), 12)], " "), Digest: digestOf(strings.ToLower(m[1]), m[2])}
	}
	if poolFile().MatchString(name) {
		return Item{Class: File, Name: name}
	}
	if at := strings.LastIndex(p, "/dists/"); at >= 0 && name != "" {
		return Item{Class: Current, Name: p[at+len("/dists/"):]}
	}
	for _, index := range []string{"InRelease", "Release", "Release.gpg", "Packages"} {
		if name == index || strings.HasPrefix(name, index+".") { // of an archive without dists
			return Item{Class: Current, Name: name}
		}
	}
	return Item{}
}

// Bounds of an index of packages.
const (
	maxPackages = 1 << 29   // bytes of it, not compressed; that of Debian has 50 MB
	maxStanza   = 256 << 10 // bytes of a line
	maxDeb      = 300_000   // files in it
)

// HasPackages reports whether the path of a registry of Debian can lead to an index of packages, which ReadPackages reads.
func HasPackages(p string) bool {
	return strings.HasPrefix(lastSegment(p), "Packages") || byHash().MatchString(p) && strings.Contains(p, "/binary-")
}

// ReadPackages reads an index of packages, compressed or not, and calls fact for each of its files. Other content has no facts.
func ReadPackages(u *url.URL, content io.Reader, fact func(Fact)) error {
	buffered := bufio.NewReaderSize(content, 64<<10)
	begin, _ := buffered.Peek(6)
	plain := io.Reader(buffered)
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return err
		}
		plain = z
	case bytes.Equal(begin, xzMagic):
		z, err := newXZ(buffered)
		if err != nil {
			return err
		}
		plain = z
	}
	base := archive(u)
	below := strings.TrimSuffix(path.Clean(base.Path), "/") + "/"
	scanner := bufio.NewScanner(io.LimitReader(plain, maxPackages))
	scanner.Buffer(make([]byte, 0, 64<<10), maxStanza)
	name, sum := "", ""
	for files := 0; scanner.Scan() && files < maxDeb; {
		line := scanner.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("Filename:")):
			name = string(bytes.TrimSpace(line[len("Filename:"):]))
		case bytes.HasPrefix(line, []byte("SHA256:")):
			sum = string(bytes.TrimSpace(line[len("SHA256:"):]))
		case len(line) == 0:
			name, sum = "", ""
		}
		if name == "" || sum == "" {
			continue
		}
		at := *base
		at.Path, at.RawPath = path.Join(base.Path, name), ""
		digest := digestOf("sha256", sum)
		if digest != (Digest{}) && len(name) <= MaxAddress && strings.HasPrefix(at.Path, below) { // not of another archive
			fact(Fact{Address: Address(&at), Digest: digest})
			files++
		}
		name, sum = "", ""
	}
	return scanner.Err()
}

// archive returns what file names in an index of packages are relative to: what has dists in it, or the directory of the index.
func archive(u *url.URL) *url.URL {
	base := *u
	base.RawPath, base.RawQuery = "", ""
	if at := strings.LastIndex(u.Path, "/dists/"); at >= 0 {
		base.Path = u.Path[:at] + "/"
		return &base
	}
	base.Path = path.Dir(u.Path) + "/"
	return &base
}
