// Package first has only tests: of the commands that a new user runs first.
package first

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/example"
	"corral/internal/test/sandboxtest"
)

// A machine is a system with a new account. See testdata/machine.
type machine struct {
	system, account, umask string
}

// screen returns the commands of the README's first screen, as they are written.
func screen(t *testing.T, root string) []string {
	t.Helper()
	listings, err := example.Listings(filepath.Join(root, "README.md"))
	if err != nil || len(listings) == 0 || listings[0].What != t.Name() {
		t.Fatalf("the first block of the README does not name %s: %v", t.Name(), err)
	}
	return strings.Split(strings.TrimSpace(listings[0].Text), "\n")
}

const (
	host   = "host"   // the system of this machine
	trixie = "trixie" // Debian 13

	newcomer = "corral-newcomer" // an account that no machine has
)

// machines are the accounts and systems that a new user can have. The first ones have each account, system and umask: a soak tries all.
var machines = []machine{
	{host, "root", "077"},
	{host, newcomer, "022"},
	{trixie, newcomer, "077"},
	{host, "root", "022"},
	{host, newcomer, "077"},
	{trixie, "root", "022"},
	{trixie, newcomer, "022"},
}

const usualMachines = 3

// What a user runs before and after the first screen.
var (
	checks   = []string{"make check", "sudo make check"}
	installs = []string{
		"make", "make install DESTDIR=$HOME/mine >/dev/null",
		"sudo make install DESTDIR=$HOME/other >/dev/null", "sudo make uninstall DESTDIR=$HOME/other >/dev/null",
	}
	later = []string{"make package", "sudo make demo", "make test-unit"}
	// copied is what is different for each account: where root works, and what it does as the checkout's owner.
	copied = []string{"sudo scripts/root-tree scripts/root-tree --fit", "sudo make words", "sudo make uninstall DESTDIR=$HOME >/dev/null"}
)

// commands returns what is run on a machine for the commands of the first screen, and whether that builds something.
func (m machine) commands(screen []string) (list []string, builds bool) {
	switch {
	case sandboxtest.Soak() && m.system == host: // on another system, the tests install hundreds of packages
		return slices.Concat(checks, screen, installs, later), true
	case sandboxtest.Soak() && m.account == newcomer:
		return slices.Concat(screen[:1], copied), true
	}
	return copied, false
}

// TestFirstScreen runs the README's first screen as written, and after it what a user goes on with, in a new checkout in a home
// that is open to its account alone. In a soak, each account of this system runs all of it, and users of the other one the
// demo. Otherwise they run what is different for them: all of it builds everything again, which takes longer than all other tests. In all cases, what root runs leaves the
// checkout as it was, so no later command depends on it, whatever the order.
func TestFirstScreen(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	sandboxtest.Require(t, sandboxtest.Program("sudo"), sandboxtest.Program("go"), sandboxtest.Program("git"))
	root := sandboxtest.ModuleRoot(t)
	first := screen(t, root)
	if len(first) != 2 || !strings.HasPrefix(first[0], "sudo make demo ") || !strings.HasPrefix(first[1], "sudo make test ") {
		t.Fatalf("the commands are %q, not the demo and the tests", first)
	}
	list := machines[:usualMachines]
	if sandboxtest.Soak() {
		list = machines
	}
	for _, m := range list {
		t.Run(fmt.Sprintf("%s-%s-%s", m.system, m.account, m.umask), func(t *testing.T) {
			system := "/"
			if m.system != host {
				system = debian(t, m.system)
			}
			list, builds := m.commands(first)
			m.run(t, system, root, list, builds)
		})
	}
}

// run runs commands on the machine, which begins with the caches of this one's Go if they build something.
func (m machine) run(t *testing.T, system, checkout string, commands []string, builds bool) {
	t.Helper()
	work := sandboxtest.OpenDirIn(t, "/var/tmp")
	args := append([]string{system, work, checkout, m.account, m.umask}, commands...)
	cmd := exec.Command("testdata/machine", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	// `make test` takes its selection from the environment: all tests are those that include this one.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MAKEFLAGS=PKG=./cmd/corral RUN=TestDropsRoot"}
	if builds {
		out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
		caches := strings.Fields(string(out))
		if err != nil || len(caches) != 2 {
			t.Fatalf("go env: %v, %q", err, out)
		}
		cmd.Env = append(cmd.Env, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
	}
	if clients := filepath.Join(checkout, ".cache/clients"); exists(clients) {
		cmd.Env = append(cmd.Env, "CLIENTS="+clients)
	}
	report, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, report)
	}
	t.Logf("%s", report)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// packages returns those of a fresh Debian to which somebody has installed what the README's first screen assumes, sudo, and what
// `scripts/setup build` would install. The commands of copied build nothing: they need no compiler.
func packages() string {
	const list = "sudo,ca-certificates,perl,procps,make,git"
	if sandboxtest.Soak() {
		return list + ",gcc,libc6-dev,pkg-config,libseccomp-dev"
	}
	return list
}

// debian returns the root of a small Debian, which is made once a month.
func debian(t *testing.T, suite string) string {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("mmdebstrap"), sandboxtest.Program("apt-get"))
	inputs := []string{suite, packages(), runtime.GOARCH, time.Now().Format("2006-01")}
	return filepath.Join(sandboxtest.Prepared(t, "debian-"+suite, inputs, func(dir string) error {
		cmd := exec.Command("bash", "-c", `
			mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sed -n 1p) &&
			mmdebstrap --quiet --mode=root --variant=minbase --dpkgopt=force-unsafe-io --include="$1" "$2" "$3" "$mirror"`,
			"-", packages(), suite, filepath.Join(dir, "root"))
		if log, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mmdebstrap: %w\n%s", err, log[max(0, len(log)-2000):])
		}
		return nil
	}), "root")
}
