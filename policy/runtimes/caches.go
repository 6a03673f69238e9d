package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A moduleCache is what a package manager downloads and keeps: packages as their registry publishes them. Jobs that see it
// install from it without a network. It has neither the manager's settings nor its credentials, which lie beside it.
type moduleCache struct {
	home string // default place, relative to a home directory
	last string // last elements of the path, wherever the cache is
	// env returns the variables with which the manager reads the cache at dir and writes nothing there.
	env func(dir string) []string
}

// moduleCaches lists the caches that can be read where nothing can be written.
var moduleCaches = []moduleCache{
	// The directory has the layout of a module proxy. The rest of the module cache is not shown: vcs has clones, whose
	// settings may contain passwords. What a job unpacks is its own, and checked against go.sum. The checksum database
	// cannot be reached; whoever filled the cache has consulted it.
	{"go/pkg/mod/cache/download", "/cache/download", func(dir string) []string {
		proxy := strings.NewReplacer("%", "%25", " ", "%20", "#", "%23", "?", "%3F", ",", "%2C", "|", "%7C").Replace(dir)
		return []string{"GOPROXY=file://" + proxy + ",off", "GOSUMDB=off"}
	}},
	// npm writes logs beside this directory unless it is told to keep none.
	{".npm/_cacache", "/_cacache", func(dir string) []string {
		return []string{"npm_config_cache=" + filepath.Dir(dir), "npm_config_prefer_offline=true", "npm_config_logs_max=0"}
	}},
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

// ModuleCaches returns the download caches of package managers in a home directory that can be toolchains: links resolved.
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
		if info, bad := os.Lstat(dir); err == nil && bad == nil && info.IsDir() && below(real, homeDir) && IsModuleCache(real) {
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
