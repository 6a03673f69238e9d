package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A podman runs in the mount namespace of one thread, where its files are mounted over the system's and everything that it
// writes stays in memory. So the machine is not changed, except for cgroups, which close removes.
type podman struct {
	*place
	dir   string // this podman's files, a file system in memory
	group string // of its containers
}

const container = "bench"

// podmanRows measures `podman exec` in a running container with the host's programs, no network, and otherwise podman's
// defaults.
func podmanRows(o *options) ([]*Row, func(), error) {
	files := filepath.Join(o.peers, "podman")
	if _, err := os.Stat(filepath.Join(files, "usr/bin/podman")); err != nil {
		return nil, nil, errAbsent
	}
	p := &podman{dir: filepath.Join(o.dir, "podman"), group: filepath.Base(o.dir), place: newPlace()}
	err := os.Mkdir(p.dir, 0o755)
	if err == nil {
		err = p.do(func() error { return p.enter(files) })
	}
	if err == nil {
		err = p.podman("run", "--detach", "--name", container, "--network", "none", "--cgroup-parent", p.group,
			"--volume", filepath.Join(p.dir, "usr")+":/usr:ro", "--rootfs", filepath.Join(p.dir, "rootfs"), "/bin/sleep", "infinity")
	}
	if err != nil {
		p.close()
		return nil, nil, err
	}
	version := (&spawn{args: []string{"/usr/bin/podman", "--version"}, env: p.environment(), place: p.place}).said()
	call := &spawn{
		args: append(append([]string{"/usr/bin/podman"}, p.options()...), "exec", container, program),
		env:  p.environment(), place: p.place,
	}
	return []*Row{{
		Name: "podman exec", Sets: "namespaces, cgroup, seccomp, capabilities of the container; " + version,
		Lacks: "one container for all runs; no user namespace, no Landlock, no audit", AtOnce: 8, Run: call.run(),
	}}, p.close, nil
}

func (p *podman) options() []string {
	return []string{"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"}
}

func (p *podman) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/bin/podman", append(p.options(), args...)...)
	cmd.Env = p.environment()
	return cmd
}

func (p *podman) environment() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run"}
}

func (p *podman) podman(args ...string) error {
	return p.do(func() error {
		if said, err := p.command(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("podman %s: %w: %s", args[0], err, bytes.TrimSpace(said))
		}
		return nil
	})
}

// enter gives the current thread the mount namespace.
func (p *podman) enter(files string) error {
	if err := withoutUnified(); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(p.dir, name) }
	over := func(name string) string { return filepath.Join(files, name) + ":/" + name }
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"tmpfs", p.dir, "tmpfs", 0, ""},
		{"/usr", in("usr"), "", unix.MS_BIND, ""}, // the container sees the system's files, not the overlay
		{"overlay", "/usr", "overlay", unix.MS_RDONLY, "lowerdir=" + over("usr")},
		{"overlay", "/etc", "overlay", 0, "lowerdir=" + over("etc") + ",upperdir=" + in("etc") + ",workdir=" + in("work")},
		{"tmpfs", "/run", "tmpfs", 0, ""},
		{"tmpfs", "/var/lib", "tmpfs", 0, ""},
		{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount of %s: %w", m.target, err)
		}
		if m.target == p.dir {
			err := rootfs(in("rootfs"))
			for _, name := range []string{"usr", "etc", "work"} {
				err = errors.Join(err, os.Mkdir(in(name), 0o755))
			}
			if err != nil {
				return err
			}
		}
	}
	const limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n" // its own may exceed our limits
	return os.WriteFile("/etc/containers/containers.conf", []byte(limits), 0o644)
}

func (p *podman) close() {
	_ = p.podman("rm", "--force", "--time", "0", container)
	p.place.close()
	// The container's monitor ends shortly after it.
	var left []string
	for range 500 {
		if left = removeGroups(p.group); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "bench: these cgroups of podman's are left:", strings.Join(left, " "))
}
