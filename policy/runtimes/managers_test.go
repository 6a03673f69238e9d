package runtimes

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestManagers checks that the version in use of each manager is found, and that its shims are rejected.
func TestManagers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		programs []string
		texts    map[string]string
		config   string // the toolchain directory
		runtime  string
		want     string // "" means none
	}{
		{
			"rustup",
			[]string{".rustup/toolchains/nightly-x/bin/rustc", ".rustup/toolchains/stable-x/bin/rustc"},
			map[string]string{".rustup/settings.toml": "version = \"12\"\ndefault_toolchain = \"stable-x\"\n"},
			".rustup", "rust", ".rustup/toolchains/stable-x/bin/rustc",
		},
		{
			"rustup by a short name",
			[]string{".rustup/toolchains/stable-x/bin/rustc"},
			map[string]string{".rustup/settings.toml": "default_toolchain = \"stable\"\n"},
			".rustup", "rust", ".rustup/toolchains/stable-x/bin/rustc",
		},
		{"rustup's proxies", []string{".cargo/bin/rustup", ".cargo/bin/rustc -> rustup"}, nil, ".cargo", "rust", ""},
		{
			"nvm",
			[]string{".nvm/versions/node/v18.1.0/bin/node", ".nvm/versions/node/v20.9.1/bin/node", ".nvm/versions/node/v20.10.0/bin/node"},
			map[string]string{".nvm/alias/default": "20\n"},
			".nvm", "node", ".nvm/versions/node/v20.10.0/bin/node",
		},
		{
			"nvm's aliases",
			[]string{".nvm/versions/node/v18.1.0/bin/node", ".nvm/versions/node/v20.9.1/bin/node"},
			map[string]string{".nvm/alias/default": "lts/*", ".nvm/alias/lts/*": "lts/hydrogen", ".nvm/alias/lts/hydrogen": "v18.1.0"},
			".nvm", "node", ".nvm/versions/node/v18.1.0/bin/node",
		},
		{
			"nvm's latest",
			[]string{".nvm/versions/node/v9.1.0/bin/node", ".nvm/versions/node/v20.9.1/bin/node"},
			map[string]string{".nvm/alias/default": "node"},
			".nvm", "node", ".nvm/versions/node/v20.9.1/bin/node",
		},
		{
			"nvm's aliases in a circle",
			[]string{".nvm/versions/node/v18.1.0/bin/node"},
			map[string]string{".nvm/alias/default": "default"},
			".nvm", "node", ".nvm/versions/node/v18.1.0/bin/node",
		},
		{
			"an alias that leads out",
			[]string{".nvm/versions/node/", "evil/bin/node"},
			map[string]string{".nvm/alias/default": "../../../evil"},
			".nvm", "node", "",
		},
		{
			"pyenv",
			[]string{".pyenv/versions/3.9/bin/python3", ".pyenv/versions/3.11/bin/python3", ".pyenv/shims/python3"},
			map[string]string{".pyenv/version": "3.11\n3.9\n"},
			".pyenv", "python", ".pyenv/versions/3.11/bin/python3",
		},
		{"pyenv's shims", []string{".pyenv/shims/python3"}, nil, ".pyenv/shims", "python", ""},
		{
			"a version that leads out",
			[]string{".pyenv/versions/3.9 -> /evil", "evil/bin/python3"},
			map[string]string{".pyenv/version": "3.9"},
			".pyenv", "python", "",
		},
		{
			"rbenv",
			[]string{".rbenv/versions/3.2.1/bin/ruby"},
			map[string]string{".rbenv/version": "3.2.1"},
			".rbenv", "ruby", ".rbenv/versions/3.2.1/bin/ruby",
		},
		{
			"sdkman", []string{
				".sdkman/candidates/java/17/bin/java", ".sdkman/candidates/java/17/bin/javac", ".sdkman/candidates/java/current -> 17",
			}, nil, ".sdkman", "java", ".sdkman/candidates/java/17/bin/java",
		},
		{
			"asdf",
			[]string{".asdf/installs/nodejs/18.0.0/bin/node", ".asdf/installs/nodejs/20.0.0/bin/node", ".asdf/shims/node"},
			map[string]string{".tool-versions": "nodejs-x 1\nnodejs 18.0.0\n"},
			".asdf", "node", ".asdf/installs/nodejs/18.0.0/bin/node",
		},
		{
			"mise",
			[]string{".local/share/mise/installs/ruby/3.1.0/bin/ruby", ".local/share/mise/installs/ruby/3.2.0/bin/ruby"},
			map[string]string{".config/mise/config.toml": "[tools]\nruby = \"3.1\"\n"},
			".local/share/mise", "ruby", ".local/share/mise/installs/ruby/3.1.0/bin/ruby",
		},
		{
			"the latest of mise",
			[]string{".local/share/mise/installs/ruby/3.9.0/bin/ruby", ".local/share/mise/installs/ruby/3.10.0/bin/ruby"},
			nil, ".local/share/mise", "ruby", ".local/share/mise/installs/ruby/3.10.0/bin/ruby",
		},
		{"bun", []string{".bun/bin/bun"}, nil, ".bun", "typescript", ".bun/bin/bun"},
		{"Go's own", []string{"sdk/go1.9/bin/go", "sdk/go1.24.1/bin/go"}, nil, "sdk", "go", "sdk/go1.24.1/bin/go"},
		{"a file in place of a manager", []string{".nvm"}, nil, ".nvm", "node", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, append(tt.programs, "usr/bin/cc")...)
			for name, text := range tt.texts {
				f.text(name, text)
			}
			c, missing := f.find([]string{tt.config}, nil).Choose(tt.runtime, "", nil)
			if tt.want == "" {
				if missing == "" {
					t.Errorf("%s", c.Path)
				}
				return
			}
			if c.Real != f.at(tt.want) {
				t.Errorf("%q, want %s: %s", c.Real, tt.want, missing)
			}
			// Toolchains suggests the same directory to a user who has not configured it.
			dir, _, _ := strings.Cut(f.at(tt.want), "/bin/")
			r, _ := Lookup(tt.runtime)
			if got := Toolchains(f.dir, r.Candidates()); !slices.Equal(got, []string{dir}) {
				t.Errorf("suggested %q, want %s", got, dir)
			}
			if got := Toolchains(f.dir, []string{"nothing"}); got != nil {
				t.Errorf("suggested although it has no program: %q", got)
			}
		})
	}
	if got := Toolchains("relative", nil); got != nil {
		t.Errorf("%q", got)
	}
}

// TestBounds checks that user-controlled files of a manager are read up to a limit, and cannot lead out of its directory.
func TestBounds(t *testing.T) {
	f := newFake(t, "home/.pyenv/versions/", "evil/bin/python3")
	for _, version := range []string{
		"..", ".", "", "/", "../../../evil", "/evil", "a\x00b", "\x1b[2J", strings.Repeat("x", 1<<20), strings.Repeat("../", 1000) + "evil",
	} {
		f.text("home/.pyenv/version", version)
		if got := Toolchains(f.at("home"), nil); got != nil {
			t.Errorf("%.40q: %q", version, got)
		}
	}
	for n := range maxNames + 10 {
		f.put("many/v" + strings.Repeat("1", n%7+1) + "." + strings.Repeat("2", n/7+1))
	}
	if got := len(names(f.at("many"))); got != maxNames {
		t.Errorf("%d names", got)
	}
}

// TestReadSmall checks that only regular files below the directory are read. Opening a FIFO would block.
func TestReadSmall(t *testing.T) {
	f := newFake(t, "dir/inside -> sub/file", "dir/round -> sub/../sub/file", "dir/up -> ../beside", "dir/absolute -> beside",
		"dir/sub/out -> ../../beside", "dir/gone -> nowhere", "linked -> dir")
	f.text("dir/sub/file", "text")
	f.text("dir/large", strings.Repeat("x", maxSmall+1))
	f.text("beside", "secret")
	if err := errors.Join(
		unix.Mkfifo(f.at("dir/fifo"), 0o644), os.Symlink("fifo", f.at("dir/to-fifo")),
		os.Symlink("/proc/self/fd/0", f.at("dir/magic")), os.Symlink("/dev/zero", f.at("dir/zero")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub/file": "text", "inside": "text", "round": "text", "large": strings.Repeat("x", maxSmall),
		"up": "", "absolute": "", "sub/out": "", "gone": "", "sub": "", "fifo": "", "to-fifo": "", "magic": "", "zero": "",
		"../beside": "", f.at("beside"): "", "": "",
	} {
		if got := readSmall(f.at("dir"), name); got != want {
			t.Errorf("%q: %.20q, want %.20q", name, got, want)
		}
	}
	if got := readSmall(f.at("linked"), "sub/file"); got != "text" {
		t.Errorf("directory given as a link: %q", got)
	}
	for dir, name := range map[string]string{"/dev": "zero", f.at("dir/fifo"): "x", f.at("nowhere"): "x"} {
		if got := readSmall(dir, name); got != "" {
			t.Errorf("%s in %s: %d bytes", name, dir, len(got))
		}
	}
	if got := names(f.at("dir/fifo")); got != nil {
		t.Errorf("names in a FIFO: %q", got)
	}
}

func TestByVersion(t *testing.T) {
	list := []string{"go1.10", "go1.9", "go1.9.1", "", "b", "a10", "a9", "a09", "jdk-17", "jdk-8", "go1.010"}
	slices.SortStableFunc(list, byVersion)
	want := []string{"", "a9", "a09", "a10", "b", "go1.9", "go1.9.1", "go1.10", "go1.010", "jdk-8", "jdk-17"}
	if !slices.Equal(list, want) {
		t.Errorf("%q, want %q", list, want)
	}
}
