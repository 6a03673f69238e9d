package runtimes

// Places define where programs are looked for.
type Places struct {
	// Toolchains are the directories of the operator's configuration. They precede those of the system. Each is searched
	// in its bin, or if it has none, directly; and if it belongs to a version manager (~/.nvm, ~/.pyenv, ~/.rustup and so
	// on), in the versions in use.
	Toolchains []string
	// Never are directories in which no program is accepted, even inside a toolchain: repositories.
	Never []string

	host host // replaced in tests; zero means this host
}

// A host describes where the system's programs are.
type host struct {
	dirs   []string // as in PATH; * matches any one name
	trees  []string // where links in dirs may lead: what every jail shows
	caches []string // Go build caches
	owner  uint32   // owner of system files
}

// system lists what package rootfs shows in every jail, as far as it contains programs. /snap is left out: its programs
// start a service.
var system = host{
	dirs: []string{
		"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/go/bin",
		"/usr/lib/go/bin", "/usr/lib/jvm/*/bin", "/usr/lib/dotnet", "/opt/*/bin",
	},
	trees:  []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"},
	caches: goCaches,
}

// goCaches are the directories where a prebuilt cache is looked for, in addition to go-build in each toolchain directory.
// See Choice.Faster.
var goCaches = []string{"/usr/local/lib/corral/go-build", "/usr/lib/corral/go-build", "/opt/corral/go-build"}
