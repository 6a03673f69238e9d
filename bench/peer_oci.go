package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"corral/seccomp"
)

// ociRows measures an OCI runtime (runc, crun), which makes a new container for each job.
func ociRows(o *options, name, path string) ([]*Row, func(), error) {
	runtime, env, err := o.debian(path)
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(o.dir, name)
	group := "/" + filepath.Base(o.dir) + "-" + name
	p := newPlace()
	clean := func() {
		p.close()
		removeGroups(group)
	}
	var next atomic.Int64
	err = errors.Join(rootfs(filepath.Join(dir, "rootfs")), p.do(withoutUnified))
	// Parallel runs need cgroups of their own, and therefore bundles.
	bundles := make(chan string, slices.Max(parallels()))
	for i := range cap(bundles) {
		bundle := filepath.Join(dir, strconv.Itoa(i))
		err = errors.Join(err, os.Mkdir(bundle, 0o700), ociSpec(bundle, filepath.Join(dir, "rootfs"), o.repo, fmt.Sprintf("%s/job-%d", group, i)))
		bundles <- bundle
	}
	if err != nil {
		clean()
		return nil, nil, err
	}
	return []*Row{{
		Name:  name,
		Sets:  "all namespaces but the user's, cgroup, capabilities, corral's list of system calls; " + (&spawn{args: []string{runtime, "--version"}, env: env}).said(),
		Lacks: "no user namespace, no Landlock, no audit",
		Run: func() error {
			bundle := <-bundles
			defer func() { bundles <- bundle }()
			id := fmt.Sprintf("bench-%d", next.Add(1))
			return (&spawn{
				args: []string{runtime, "--root", filepath.Join(dir, "state"), "run", "--bundle", bundle, id}, env: env, place: p,
			}).run()()
		},
	}}, clean, nil
}

// withoutUnified gives this thread a mount namespace in which the v2 hierarchy is covered if there are v1 hierarchies: crun
// refuses both together.
func withoutUnified() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	var fs unix.Statfs_t
	const unified = "/sys/fs/cgroup/unified"
	if err == nil && unix.Statfs(unified, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		err = unix.Mount("tmpfs", unified, "tmpfs", 0, "")
	}
	if err != nil {
		return fmt.Errorf("unified cgroups: %w", err)
	}
	return nil
}

// rootfs makes the root of a container, with the host's programs.
func rootfs(dir string) error {
	var failed []error
	for _, name := range []string{"usr", "etc", "proc", "sys", "dev", "tmp", "work"} {
		failed = append(failed, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		failed = append(failed, os.Symlink("usr/"+link, filepath.Join(dir, link)))
	}
	return errors.Join(failed...)
}

// ociSpec writes the configuration of a container: what corral sets up, as far as an OCI configuration can express it.
func ociSpec(dir, root, repo, group string) error {
	mount := func(to, kind, from string, options ...string) map[string]any {
		return map[string]any{"destination": to, "type": kind, "source": from, "options": options}
	}
	var namespaces []map[string]string
	for _, kind := range []string{"pid", "network", "ipc", "uts", "mount", "cgroup"} {
		namespaces = append(namespaces, map[string]string{"type": kind})
	}
	calls := map[seccomp.Verdict][]string{}
	for _, r := range seccomp.Table("default") {
		calls[r.Verdict] = append(calls[r.Verdict], r.Name)
	}
	allowed := append(calls[seccomp.Allow], calls[seccomp.ByArgument]...) // it cannot express our conditions on arguments
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"args": []string{program}, "cwd": "/work", "env": []string{"PATH=/usr/bin:/bin"}, "noNewPrivileges": true,
			"user": map[string]any{"uid": nobody, "gid": nobody}, "capabilities": map[string]any{},
		},
		"root": map[string]any{"path": root, "readonly": true},
		"mounts": []map[string]any{
			mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
			mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
			mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev"),
			mount("/usr", "bind", "/usr", "rbind", "ro"),
			mount("/etc", "bind", "/etc", "rbind", "ro"),
			mount("/work", "bind", repo, "rbind", "rw"),
		},
		"linux": map[string]any{
			"cgroupsPath": group,
			"namespaces":  namespaces,
			"resources": map[string]any{
				"memory": map[string]any{"limit": 256 << 20}, "pids": map[string]any{"limit": 64},
				"cpu": map[string]any{"quota": 200000, "period": 100000},
			},
			"seccomp": map[string]any{
				"defaultAction": "SCMP_ACT_ERRNO",
				"syscalls": []map[string]any{
					{"names": allowed, "action": "SCMP_ACT_ALLOW"},
					{"names": calls[seccomp.Absent], "action": "SCMP_ACT_ERRNO", "errnoRet": int(unix.ENOSYS)},
				},
			},
		},
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
}
