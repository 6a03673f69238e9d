package rootfs

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// kind is the expected type of a row of etc. A link is copied for either.
type kind int

const (
	plain   kind = iota // a file
	subtree             // a directory and everything below it
	either              // one of the two
)

// etcRow is a name below /etc that is copied for jobs.
type etcRow struct {
	name   string // components may be patterns of path.Match
	kind   kind
	reason string
	needed bool // fail if the host has it but it cannot be copied
}

// etc lists what jobs see of the host's /etc, whoever made it or changed it; configuration files that are as their packages
// have them are shown besides, see shipped. Files that may contain credentials are omitted, whether
// world-readable or not: environment, gitconfig, npmrc, pip.conf, wgetrc, curlrc, gemrc, apt/, profile.d/,
// bash.bashrc, maven/settings.xml, R/*.site, php's fpm pools; and those that identify the machine: machine-id,
// hostid. ld.so.preload would load libraries that the jail lacks.
var etc = []etcRow{
	{"ld.so.cache", plain, "the loader's index, without which libraries outside the standard directories are not found", true},
	{"ld.so.conf", plain, "ldconfig -p, cross linkers", false},
	{"ld.so.conf.d", subtree, "included by ld.so.conf", false},
	{"alternatives", subtree, "/usr/bin/cc, awk, java, editor are links into it", false},

	{"ssl/certs", subtree, "certificates of authorities, including Java's", false},
	{"ssl/openssl.cnf", plain, "OpenSSL's settings; openssl(1) warns if they are missing", false},
	{"ssl/cert.pem", plain, "certificates on Alpine, Arch, Fedora", false},
	{"ca-certificates.conf", plain, "the selected authorities", false},
	{"ca-certificates/extracted", subtree, "certificates on Arch", false},
	{"pki/tls", subtree, "certificates on Fedora", false},
	{"pki/ca-trust/extracted", subtree, "certificates on Fedora", false},
	{"pki/java", subtree, "certificates for Java on Fedora", false},
	{"crypto-policies", subtree, "included by Fedora's openssl.cnf and java.security", false},

	{"localtime", plain, "the time zone", false},
	{"timezone", plain, "the time zone's name", false},
	{"locale.alias", plain, "locale names; /usr/share/locale links to it", false},
	{"os-release", plain, "identifies the distribution", false},
	{"lsb-release", plain, "identifies the distribution", false},
	{"debian_version", plain, "identifies the distribution", false},
	{"*-release", plain, "identifies the distribution: alpine-, arch-, fedora-, redhat-, system-release", false},
	{"dpkg/origins", subtree, "dpkg-vendor, dpkg-buildflags", false},

	{"services", plain, "getservbyname(3)", false},
	{"protocols", plain, "getprotobyname(3)", false},
	{"host.conf", plain, "lookup order of the resolver", false},
	{"gai.conf", plain, "getaddrinfo(3)'s preferences", false},
	{"mime.types", plain, "file types: Python, web servers", false},
	{"magic", plain, "file(1)", false},
	{"magic.mime", plain, "file(1)", false},
	{"shells", plain, "getusershell(3)", false},
	{"inputrc", plain, "readline", false},
	{"terminfo", subtree, "terminals described by the administrator", false},
	{"manpath.config", plain, "man(1)", false},
	{"groff", subtree, "man(1)", false},
	{"vim", subtree, "/usr/share/vim links to it", false},
	{"gdb", subtree, "gdb's start-up", false},
	{"fonts", subtree, "fontconfig: plots, PDF, headless browsers", false},
	{"ImageMagick-*", subtree, "policy and delegates of convert(1)", false},
	{"libreoffice/registry", subtree, "soffice does not start without it; /usr/lib/libreoffice links to it", false},
	{"texmf", subtree, "TeX's settings; /usr/share/texmf links to it", false},
	{"xml", subtree, "catalogs: xsltproc finds DTDs offline", false},
	{"sgml", subtree, "catalogs", false},

	{"perl", subtree, "part of @INC", false},
	{"python3*", subtree, "sitecustomize; /usr/lib/python3* links to it", false},
	{"java-*-openjdk*", subtree, "/usr/lib/jvm links to it; no JVM starts without it", false},
	{"java", subtree, "Fedora's and Arch's JVM settings", false},
	{"maven/m2.conf", plain, "mvn's class path", false},
	{"maven/toolchains.xml", plain, "mvn's JDKs", false},
	{"maven/logging", subtree, "mvn's log format", false},
	{"ant.conf", plain, "ant", false},
	{"ant", subtree, "ant", false},
	{"R/Renviron", plain, "R does not start without it", false},
	{"R/Makeconf", plain, "R CMD INSTALL", false},
	{"R/ldpaths", plain, "R's library path", false},
	{"R/javaconf", plain, "R with Java", false},
	{"R/repositories", plain, "R's package sources", false},
	{"php/*/cli", subtree, "php's settings", false},
	{"php/*/mods-available", subtree, "php/*/cli links to it", false},
	{"mono", subtree, "mono does not start without it", false},
	{"dotnet", subtree, "the location of .NET", false},
	{"julia", subtree, "julia's start-up", false},
}

// Contents of generated files that are equal in every jail.
const (
	// etcHosts contains the jail's name, so that programs that look up their own host name (the JVM, Erlang, MPI) get
	// an answer without a network. It is on a line of its own, so that hostname -f answers it and not localhost.
	etcHosts = "127.0.0.1\tlocalhost\n127.0.0.1\t" + Hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	// etcNsswitch has only the classic sources: no systemd, sss or ldap. A name of a host that files lack does not exist, which is
	// an answer for good: C libraries do not go on to dns, where they would find no name server, and programs would try again
	// later. A Go program with a resolver of its own dials it only if dns is a source.
	etcNsswitch = etcSources + "hosts: files [NOTFOUND=return] dns\n"
	etcSources  = "passwd: files\ngroup: files\nshadow: files\nnetworks: files\nprotocols: files\nservices: files\n"
	// doorNsswitch and doorResolv are for jobs that may reach hosts: corral-egress is their name server.
	doorNsswitch = etcSources + "hosts: files dns\n"
	doorResolv   = "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n"
	// etcChromium is read by the start script of Debian's Chromium, which ends with "No usable sandbox!" without it: its own
	// sandbox is made of namespaces, which jobs may not have. Playwright passes the option, too.
	etcChromium = "export CHROMIUM_FLAGS=\"$CHROMIUM_FLAGS --no-sandbox\"\n"
	// etcFstab avoids warnings of mount(8) and findmnt(8).
	etcFstab = "# a jail mounts nothing\n"
)

// nobodyID is the kernel's overflow ID, shown as the owner of files whose IDs have no mapping.
const nobodyID = 65534

// check returns an error for a range that passwd cannot name.
func (r IDRange) check() error {
	const maxUID = 1<<32 - 2 // (uid_t)-1 means "unchanged", chown(2)
	last := r.First + r.Count - 1
	switch {
	case r == IDRange{}:
		return nil
	case r.Count < 1 || r.Count > maxIDs:
		return fmt.Errorf("%w: %d IDs (hint: 1 to %d)", ErrIDs, r.Count, maxIDs)
	case r.First < 1 || r.First > maxUID || last > maxUID: // also check First alone: the sum may overflow
		return fmt.Errorf("%w: %d to %d (hint: 1 to %d; 0 is root)", ErrIDs, r.First, last, maxUID)
	case r.First <= nobodyID && nobodyID <= last:
		return fmt.Errorf("%w: %d to %d contains nobody, %d", ErrIDs, r.First, last, nobodyID)
	}
	return nil
}

// generate adds the files of /etc that are not copied from the host.
func (b *builder) generate(o Options) {
	ids, resolv, nsswitch := o.JobUIDs, "", etcNsswitch // without a network there is no name server
	if o.Connected {
		resolv, nsswitch = doorResolv, doorNsswitch
	}
	for _, f := range []struct{ name, text string }{
		{"passwd", passwd(ids, b.shell())},
		{"group", group(ids)},
		{"hosts", etcHosts},
		{"hostname", Hostname + "\n"},
		{"resolv.conf", resolv},
		{"nsswitch.conf", nsswitch},
		{"fstab", etcFstab},
	} {
		b.add(Entry{Path: "/etc/" + f.name, Mode: 0o644, Data: []byte(f.text)})
	}
	if b.hostDir("/etc/chromium.d") != 0 {
		b.add(Entry{Path: "/etc/chromium.d/corral", Mode: 0o644, Data: []byte(etcChromium)})
	}
	b.dir(DoorDir)
	b.add(Entry{Path: DoorDir + "/resolv.conf", Mode: 0o644, Data: []byte(doorResolv)})
	b.add(Entry{Path: DoorDir + "/nsswitch.conf", Mode: 0o644, Data: []byte(doorNsswitch)})
	b.link("/etc/mtab", "../proc/self/mounts")
}

// shell returns the login shell of jobs: bash if the host has it.
func (b *builder) shell() string {
	const bash = "/bin/bash"
	fd, err := b.open(bash, unix.O_PATH, unix.RESOLVE_IN_ROOT)
	if err != nil {
		return "/bin/sh"
	}
	unix.Close(fd)
	return bash
}

// passwd returns the passwd(5) file of jobs, with root and nobody as the only other accounts.
func passwd(ids IDRange, shell string) string {
	var s strings.Builder
	s.WriteString("root:x:0:0:root:/root:/usr/sbin/nologin\n")
	for id := ids.First; id < ids.First+ids.Count; id++ {
		fmt.Fprintf(&s, "%s:x:%d:%d::%s:%s\n", User, id, id, HomeDir, shell)
	}
	fmt.Fprintf(&s, "nobody:x:%d:%d:nobody:/nonexistent:/usr/sbin/nologin\n", nobodyID, nobodyID)
	return s.String()
}

// group returns the group(5) file of jobs.
func group(ids IDRange) string {
	var s strings.Builder
	s.WriteString("root:x:0:\ntty:x:5:\n") // 5 is the usual gid= of devpts
	for id := ids.First; id < ids.First+ids.Count; id++ {
		fmt.Fprintf(&s, "%s:x:%d:\n", User, id)
	}
	fmt.Fprintf(&s, "nogroup:x:%d:\n", nobodyID)
	return s.String()
}
