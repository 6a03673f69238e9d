package rootfs

import (
	"errors"
	"path"
	"strings"
	"testing"
)

func TestCheckRepoPath(t *testing.T) {
	extra := []Place{
		{"/", false, "it is the home of daemon"},
		{"/var/lib/corral", true, "it holds the state of corral"},
		{"/data/homes/ann", false, "it is the home directory of ann"},
	}
	for p, want := range map[string]string{ // "" for allowed, else a part of the reason
		"/work/app":               "",
		"/home/ann/app":           "",
		"/root/app":               "",
		"/tmp/app":                "",
		"/var/tmp/app":            "",
		"/opt/app":                "",
		"/srv/app":                "",
		"/mnt/disk":               "",
		"/media/ann/disk":         "",
		"/run/media/ann/disk":     "",
		"/usr/src/linux":          "",
		"/usr/local/src/app":      "",
		"/var/www/app":            "",
		"/var/lib/jenkins/ws/app": "",
		"/data/homes/ann/app":     "",
		"/usrlocal":               "",
		"/etcetera/x":             "",
		"/application":            "",
		"/work/with space/ünï":    "",

		"/":                       "whole host",
		"/etc":                    "secrets",
		"/etc/nginx":              "lies in /etc",
		"/usr":                    "programs",
		"/usr/local":              "lies in /usr",
		"/usr/src":                "sources",
		"/usr/local/lib/app":      "lies in /usr",
		"/bin":                    "programs",
		"/lib/x":                  "lies in /lib",
		"/boot/grub":              "kernel",
		"/dev/shm/app":            "devices",
		"/proc/self/cwd":          "processes",
		"/sys/fs":                 "hardware",
		"/run/user/1000/app":      "sockets",
		"/run/media":              "other disks",
		"/home":                   "homes",
		"/home/ann":               "home directory of a user",
		"/root":                   "home directory of root",
		"/tmp":                    "shared",
		"/var":                    "state",
		"/var/tmp":                "shared",
		"/var/lib":                "state",
		"/var/log/app":            "logs",
		"/var/run/app":            "/run",
		"/opt":                    "software",
		"/srv":                    "services",
		"/mnt":                    "disks",
		"/media":                  "disks",
		"/var/lib/corral":         "state of corral",
		"/var/lib/corral/jails":   "state of corral",
		"/data/homes/ann":         "home directory of ann",
		"/data/homes":             "contains /data/homes/ann",
		"/data":                   "contains /data/homes/ann",
		"/var/lib/docker/x":       "containers",
		"":                        "empty",
		"app":                     "not absolute",
		"./app":                   "not absolute",
		"/work/../etc":            "hint: /etc",
		"/work/":                  "hint: /work",
		"/work//app":              "hint: /work/app",
		"/work/a\nb":              "",
		"/work/a\x00b":            "NUL",
		"/work/a\x1b[2J":          "",
		strings.Repeat("/a", 3e3): "longer",
	} {
		err := CheckRepoPath(p, extra...)
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: %v", p, err)
			}
		case err == nil:
			t.Errorf("%q is accepted", p)
		case !errors.Is(err, ErrRepo) && !errors.Is(err, ErrPath), !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v; want %q", p, err, want)
		case strings.ContainsAny(err.Error(), "\n\x1b\x00"):
			t.Errorf("%q: control characters in %q", p, err)
		}
	}
}

// TestNoRepoContainsJailDirectories checks that no repository contains a directory of the jail itself, over which it would be
// mounted.
func TestNoRepoContainsJailDirectories(t *testing.T) {
	var own []string
	for _, d := range Private {
		own = append(own, d.Path)
	}
	for _, d := range systemDirs {
		own = append(own, d.path)
	}
	for _, d := range emptyDirs {
		own = append(own, d.path)
	}
	for _, p := range append(own, "/etc", "/var/run") {
		for ; ; p = path.Dir(p) {
			if CheckRepoPath(p) == nil {
				t.Errorf("%s is accepted as a repository", p)
			}
			if p == "/" {
				break
			}
		}
	}
}

// TestCheckHidden checks that hidden directories of homes are refused as repositories, and those deeper down are not.
func TestCheckHidden(t *testing.T) {
	homes := []string{"/root", "/var/lib/build", "/"}
	for p, want := range map[string]string{
		"/root/.ssh": "/root/.ssh", "/root/.config/corral": "/root/.config", "/home/ada/.ssh": "/home/ada/.ssh",
		"/home/ada/.local/state/corral/x": "/home/ada/.local", "/var/lib/build/.cache/x": "/var/lib/build/.cache",
		"/root/x": "", "/home/ada/src/.hidden": "", "/home/ada": "", "/home/.ada/x": "", "/.snapshot": "", "/srv/.git": "", "/rooted/.x": "",
	} {
		err := CheckHidden(p, homes)
		if (want == "") != (err == nil) || err != nil && (!errors.Is(err, ErrRepo) || !strings.Contains(err.Error(), "such as "+want+",")) {
			t.Errorf("%s: %v", p, err)
		}
	}
}
