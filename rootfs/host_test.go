package rootfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSystemDirectories(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes []string
		links []string // entries
		binds []string // source below the host and target
	}{
		{
			"merged",
			[]string{"bin -> usr/bin", "lib -> /usr/lib", "lib64 -> usr/lib64", "sbin -> usr/sbin"},
			[]string{"/bin -> usr/bin", "/lib -> /usr/lib", "/lib64 -> usr/lib64", "/sbin -> usr/sbin"},
			[]string{"/usr /usr"},
		},
		{"split", []string{"bin/", "lib/", "lib64 -> lib"}, []string{"/lib64 -> lib"}, []string{"/usr /usr", "/bin /bin", "/lib /lib"}},
		{"opt with software", []string{"opt/go/bin/"}, nil, []string{"/usr /usr", "/opt /opt"}},
		{"opt empty", []string{"opt/"}, nil, []string{"/usr /usr"}},
		{"opt on another disk", []string{"opt -> /data/opt", "data/opt/go/"}, nil, []string{"/usr /usr", "/data/opt /opt"}},
		{"opt out of the host", []string{"opt -> ../../../data/opt", "data/opt/go/"}, nil, []string{"/usr /usr", "/data/opt /opt"}},
		{"opt to nowhere", []string{"opt -> /data/opt"}, nil, []string{"/usr /usr"}},
		{"the rest", []string{"home/ann/.ssh/id = key", "root/x", "var/lib/db/", "srv/x", "boot/x", "mnt/x"}, nil, []string{"/usr /usr"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			host := fakeHost(t, tc.nodes...)
			tree := must(t, Options{Host: host})
			for _, l := range tc.links {
				p, _, _ := strings.Cut(l, " ")
				if got := p + " " + describe(tree, p); got != l {
					t.Errorf("got %s, want %s", got, l)
				}
			}
			var binds []string
			for _, b := range tree.Binds {
				binds = append(binds, strings.TrimPrefix(b.Source, host)+" "+b.Target)
				if got := describe(tree, b.Target); got != "dir" {
					t.Errorf("mount point %s: %s", b.Target, got)
				}
			}
			if !slices.Equal(binds, tc.binds) {
				t.Errorf("binds %q, want %q", binds, tc.binds)
			}
			for _, p := range []string{"/home/ann", "/root", "/var/lib", "/srv", "/boot", "/mnt", "/data"} {
				if got := describe(tree, p); got != "absent" {
					t.Errorf("%s: %s", p, got)
				}
			}
		})
	}
}

func TestSkeleton(t *testing.T) {
	tree := must(t, Options{Host: fakeHost(t)})
	for _, p := range []string{"/proc", "/dev", "/sys", "/run", "/tmp", "/var", "/var/tmp", "/home", "/usr"} {
		if got := describe(tree, p); got != "dir" {
			t.Errorf("%s: %s", p, got)
		}
	}
	if got := describe(tree, "/var/run"); got != "-> ../run" {
		t.Errorf("/var/run %s", got)
	}
}

// TestScratch: what everybody may write on the host is a link to the private /tmp, unless something is mounted there.
func TestScratch(t *testing.T) {
	host := fakeHost(t, "run/lock/", "var/lib/php/sessions/")
	for _, tc := range []struct {
		mode      os.FileMode
		toolchain string
		want      string
	}{
		{0o755, "", "absent"},
		{0o777, "", "-> /tmp"},
		{0o777, "/var/lib/php/sessions/tool", "absent"},
	} {
		sessions := filepath.Join(host, "var/lib/php/sessions")
		for _, dir := range []string{sessions, filepath.Join(host, "run/lock")} {
			if err := os.Chmod(dir, tc.mode|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{Host: host}
		if tc.toolchain != "" {
			if err := os.Mkdir(filepath.Join(host, tc.toolchain), 0o755); err != nil {
				t.Fatal(err)
			}
			o.Toolchains = []string{tc.toolchain}
		}
		tree := must(t, o)
		if got := describe(tree, "/var/lib/php/sessions"); got != tc.want {
			t.Errorf("%v: %s, want %s", tc, got, tc.want)
		}
		if got, want := describe(tree, "/var/lock") == "-> ../run/lock", tc.mode == 0o777; got != want {
			t.Errorf("%v: /var/lock is a link: %v", tc, got)
		}
	}
}

func TestHostIsUnusable(t *testing.T) {
	empty := t.TempDir()
	noEtc := t.TempDir()
	if err := os.Mkdir(filepath.Join(noEtc, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		o    Options
		want error
		text string
	}{
		{Options{Host: "relative"}, ErrPath, "not absolute"},
		{Options{Host: filepath.Join(empty, "absent")}, ErrHost, "no such file"},
		{Options{Host: empty}, ErrHost, "/usr"},
		{Options{Host: noEtc}, ErrHost, "/etc"},
		{Options{Host: fakeHost(t, "opt -> opt")}, ErrHost, "too many levels"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{0, 5}}, ErrIDs, "0 is root"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{65530, 5}}, ErrIDs, "nobody"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{1 << 32, 1}}, ErrIDs, "hint"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{1000, maxIDs + 1}}, ErrIDs, "hint"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{1000, -1}}, ErrIDs, "hint"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{1000, 0}}, ErrIDs, "hint"},
		{Options{Host: fakeHost(t), JobUIDs: IDRange{math.MaxInt, 2}}, ErrIDs, "hint"},
	} {
		_, err := Host(tc.o)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%+v: %v; want %v with %q", tc.o, err, tc.want, tc.text)
		}
	}
}

func TestRepoMountPoint(t *testing.T) {
	host := fakeHost(t, "opt/app/", "usr/src/app/")
	for repo, want := range map[string]string{
		"/work/app":      "dir",
		"/root/app":      "dir",
		"/var/www/app":   "dir",
		"/tmp/app":       "absent", // private: made by the launcher
		"/var/tmp/a/b":   "absent",
		"/home/ann/code": "absent",
		"/opt/app":       "absent", // bound: exists
		"/usr/src/app":   "absent",
	} {
		for _, o := range []Options{{Host: host, Repo: repo}, {Host: host, Repo: "/work/wt", Common: repo}} {
			if got := describe(must(t, o), repo); got != want {
				t.Errorf("%+v: %s, want %s", o, got, want)
			}
		}
	}
	for _, o := range []Options{{Host: host, Repo: "/etc/x"}, {Host: host, Repo: "/work/wt", Common: "/etc/x"}} {
		if _, err := Host(o); !errors.Is(err, ErrRepo) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	overlap := Options{Host: host, Repo: "/work/wt", Common: "/opt/app/x", Toolchains: []string{"/opt/app"}}
	if _, err := Host(overlap); !errors.Is(err, ErrToolchain) {
		t.Errorf("%+v: %v", overlap, err)
	}
}

func TestToolchains(t *testing.T) {
	host := fakeHost(t, "root/go/pkg/mod/", "data/rust/bin/", "data/rust/lib/", "data/rust-nightly/", "usr/lib/go/", "opt/go/bin/", "home/ann/go/",
		"tmp/go/", "data/link -> rust", "linked -> data", "secret/", "data/file = x", "etc/alternatives/x -> y", "var/lib/gems/",
		"var/log/x/")
	if err := os.Chmod(filepath.Join(host, "secret"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name       string
		toolchains []string
		repo       string
		binds      []string // targets beside /usr and /opt
		want       error
		text       string
	}{
		{name: "own path", toolchains: []string{"/root/go/pkg/mod", "/var/lib/gems"}, binds: []string{"/root/go/pkg/mod", "/var/lib/gems"}},
		{name: "bound already", toolchains: []string{"/usr/lib/go", "/opt/go"}},
		{
			name: "nested and doubled", toolchains: []string{"/data/rust/lib", "/data/rust/bin", "/data/rust-nightly", "/data/rust", "/data/rust"},
			binds: []string{"/data/rust", "/data/rust-nightly"},
		},
		{name: "below the repo", toolchains: []string{"/data/rust"}, repo: "/data", want: ErrToolchain, text: "overlaps"},
		{name: "above the repo", toolchains: []string{"/data"}, repo: "/data/rust", want: ErrToolchain, text: "overlaps"},
		{name: "is the repo", toolchains: []string{"/data/rust"}, repo: "/data/rust", want: ErrToolchain, text: "overlaps"},
		{name: "beside the repo", toolchains: []string{"/data/rust"}, repo: "/data/rust-nightly", binds: []string{"/data/rust"}},
		{name: "link", toolchains: []string{"/data/link"}, want: ErrToolchain, text: "link"},
		{name: "through a link", toolchains: []string{"/linked/rust"}, want: ErrToolchain, text: "link"},
		{name: "absent", toolchains: []string{"/data/ruts"}, want: fs.ErrNotExist, text: "/data/ruts"},
		{name: "file", toolchains: []string{"/data/file"}, want: ErrToolchain, text: "not a directory"},
		{name: "unreadable", toolchains: []string{"/secret"}, want: ErrToolchain, text: "0700"},
		{name: "etc", toolchains: []string{"/etc/alternatives"}, want: ErrToolchain, text: "secrets"},
		{name: "logs", toolchains: []string{"/var/log/x"}, want: ErrToolchain, text: "logs"},
		{name: "home of root", toolchains: []string{"/root"}, want: ErrToolchain, text: "home"},
		{name: "everything", toolchains: []string{"/"}, want: ErrToolchain, text: "whole host"},
		{name: "relative", toolchains: []string{"go"}, want: ErrPath, text: "hint"},
		{name: "unclean", toolchains: []string{"/data/../etc"}, want: ErrPath, text: "/etc"},
		{name: "control", toolchains: []string{"/data/a\x00b"}, want: ErrPath, text: "NUL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tree, err := Host(Options{Host: host, Toolchains: tc.toolchains, Repo: tc.repo})
			if tc.want != nil {
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
					t.Fatalf("%v; want %v with %q", err, tc.want, tc.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var binds []string
			for _, b := range tree.Binds {
				if b.Target == "/usr" || b.Target == "/opt" {
					continue
				}
				binds = append(binds, b.Target)
				if b.Source != filepath.Join(host, b.Target) || describe(tree, b.Target) != "dir" {
					t.Errorf("%+v, mount point %s", b, describe(tree, b.Target))
				}
			}
			if !slices.Equal(binds, tc.binds) {
				t.Errorf("binds %q, want %q", binds, tc.binds)
			}
		})
	}
}

func TestSameHostSameTree(t *testing.T) {
	o := Options{JobUIDs: IDRange{1000, 8}}
	if !reflect.DeepEqual(must(t, o), must(t, o)) {
		t.Error("two trees of one host differ")
	}
}
