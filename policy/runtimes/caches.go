package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/lazyregexp"
)

// A moduleCache is what a package manager downloads and keeps: packages as their registry publishes them. Jobs that see it
// install from it without a network. It has neither the manager's settings nor its credentials, which lie beside it.
type moduleCache struct {
	home string // default place, relative to a home directory
	last string // last elements of the path, wherever the cache is
	// env returns the variables with which the manager reads the cache at dir and writes nothing there.
	env func(dir string) []string
	// secret reports whether the cache at dir may contain credentials; nil stands for a cache that never does.
	secret func(dir string) bool
}

// moduleCaches lists the caches that can be read where nothing can be written.
var moduleCaches = []moduleCache{
	// The directory has the layout of a module proxy. The rest of the module cache is not shown: vcs has clones, whose
	// settings may contain passwords. What a job unpacks is its own, and checked against go.sum. The checksum database
	// cannot be reached; whoever filled the cache has consulted it.
	{"go/pkg/mod/cache/download", "/cache/download", func(dir string) []string {
		return []string{"GOPROXY=" + fileURL(dir) + ",off", "GOSUMDB=off"}
	}, nil},
	// npm writes logs beside this directory unless it is told to keep none.
	{".npm/_cacache", "/_cacache", func(dir string) []string {
		return []string{"npm_config_cache=" + filepath.Dir(dir), "npm_config_prefer_offline=true", "npm_config_logs_max=0"}
	}, npmSecret},
	// pip's own cache is of no use without a network: pip asks the index again for what versions there are, and finds wheels
	// that it built by the address of their source. So packages have to be downloaded to a directory of their own.
	{".cache/wheelhouse", "/wheelhouse", func(dir string) []string {
		return []string{"PIP_FIND_LINKS=" + fileURL(dir)}
	}, nil},
	// cargo takes no lock where it cannot write, and uses the sources that it unpacked on the host. It installs programs below
	// CARGO_HOME unless it is told another place. Besides ~/.cargo, CARGO_HOME may be /usr/local/cargo.
	{".cargo/registry", "cargo/registry", func(dir string) []string {
		return []string{"CARGO_HOME=" + filepath.Dir(dir), "CARGO_INSTALL_ROOT=/home/job/.cargo"}
	}, clonedWithPassword},
}

// fileURL returns the URL of a directory, for lists that are separated by commas, spaces or bars.
func fileURL(dir string) string {
	return "file://" + strings.NewReplacer("%", "%25", " ", "%20", "#", "%23", "?", "%3F", ",", "%2C", "|", "%7C").Replace(dir)
}

// urlWithPassword matches a URL with a password, or with a token as user. The user of ssh is neither.
const urlWithPassword = `https?://[^/\s]*@|://[^/\s]*:[^/\s]*@`

var passwordInURL = lazyregexp.New(urlWithPassword)

// clonedWithPassword reports whether the URL from which an index in cargo's registry was cloned has a password, or cannot be
// read. git writes it into FETCH_HEAD. An index that is no clone has no URL of itself.
func clonedWithPassword(registry string) bool {
	index := filepath.Join(registry, "index")
	list := names(index)
	return len(list) == maxNames || slices.ContainsFunc(list, func(name string) bool {
		if _, err := os.Lstat(filepath.Join(index, name, ".git")); errors.Is(err, os.ErrNotExist) {
			return false
		}
		text := readSmall(index, name+"/.git/FETCH_HEAD")
		return text == "" || len(text) == maxSmall || passwordInURL().MatchString(text)
	})
}

// Bounds of the search of npm's index, so that it takes less than a second.
const (
	maxIndexFiles = 10_000
	maxIndexFile  = 256 << 10
)

// secretInIndex matches an entry of npm's index with credentials: npm keeps the headers of a request that the answer names in Vary, and
// the URL of a package.
var secretInIndex = lazyregexp.New(`(?i)"[^"]*(?:authorization|cookie|token|otp)"\s*:|` + urlWithPassword)

// secretInNpmrc matches the options for credentials in npmrc(5).
var secretInNpmrc = lazyregexp.New(`(?m)^[^#;=]*_(?:auth|authToken|password)\s*=`)

// npmSecret reports whether npm's cache has credentials, may get some because its owner has them in ~/.npmrc, or is too large to know.
func npmSecret(cache string) bool {
	home := filepath.Dir(filepath.Dir(cache))
	if _, err := os.Lstat(filepath.Join(home, ".npmrc")); !errors.Is(err, os.ErrNotExist) {
		settings := readFirst(home, ".npmrc", maxIndexFile)
		if settings == "" || len(settings) == maxIndexFile || secretInNpmrc().MatchString(settings) {
			return true
		}
	}
	files := 0
	errSecret := errors.New("a secret")
	err := filepath.WalkDir(filepath.Join(cache, "index-v5"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text := readFirst(filepath.Dir(path), d.Name(), maxIndexFile)
		if files > maxIndexFiles || text == "" || len(text) == maxIndexFile || secretInIndex().MatchString(text) {
			return errSecret
		}
		return nil
	})
	return err != nil && !errors.Is(err, os.ErrNotExist)
}

// IsModuleCache reports whether a path has the name of a package manager's download cache. Such a toolchain directory is
// not searched for programs.
func IsModuleCache(path string) bool { return moduleCacheOf(path) != nil }

func moduleCacheOf(path string) *moduleCache {
	for n := range moduleCaches {
		if strings.HasSuffix(path, moduleCaches[n].last) {
			return &moduleCaches[n]
		}
	}
	return nil
}

// ModuleCaches returns the download caches of package managers in a home directory that can be toolchains: links resolved,
// and without credentials.
// Callers must observe what Toolchains says about other privileges.
func ModuleCaches(homeDir string) []string {
	homeDir, err := filepath.EvalSymlinks(homeDir)
	if err != nil || !filepath.IsAbs(homeDir) {
		return nil
	}
	var list []string
	for _, m := range moduleCaches {
		dir := filepath.Join(homeDir, m.home)
		real, err := filepath.EvalSymlinks(dir)
		info, bad := os.Lstat(dir)
		if err != nil || bad != nil || !info.IsDir() || !below(real, homeDir) || !IsModuleCache(real) {
			continue
		}
		if m.secret == nil || !m.secret(real) {
			list = append(list, real)
		}
	}
	return list
}

// cacheVariables returns the variables for the download caches among the toolchains; see Installed.Caches.
func cacheVariables(toolchains []string) []string {
	var env []string
	used := map[*moduleCache]bool{}
	for _, dir := range toolchains {
		m := moduleCacheOf(dir)
		if m == nil || used[m] || absentDir(dir) {
			continue
		}
		used[m] = true
		env = append(env, m.env(dir)...)
	}
	return env
}

func absentDir(path string) bool {
	info, err := os.Stat(path)
	if err == nil {
		return !info.IsDir()
	}
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}
