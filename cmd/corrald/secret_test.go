package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

const value = "t0ken-of-acme"

// rootDir returns a directory to which root alone controls the path.
func rootDir(t *testing.T) string {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	dir, err := os.MkdirTemp("/var/lib", "corral-secret-") //nolint:usetesting // anybody can write to /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func put(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// TestSecretRead: each source gives the secret, without its line end.
func TestSecretRead(t *testing.T) {
	dir := rootDir(t)
	path := filepath.Join(dir, "acme")
	put(t, path, value+"\n", 0o600)
	put(t, filepath.Join(dir, "program"), "#!/bin/sh\n[ -z \"$HOME$CREDENTIALS_DIRECTORY\" ] && printf '%s\\r\\n' \"$1\"\n", 0o755)
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for name, s := range map[string]secretSource{"file": {File: path}, "credential": {Credential: "acme"}, "command": {Command: []string{dir + "/program", value}}} {
		if got, err := s.Read(); err != nil || got != value {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestSecretRefused: what others than root control or can read is no secret, and nothing is waited for without end. No error has the secret.
func TestSecretRefused(t *testing.T) {
	dir := rootDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("readable"), value, 0o640)
	put(t, at("short"), "1234567\n", 0o600)
	put(t, at("long"), strings.Repeat("x", maxSecret+1), 0o600)
	put(t, at("lines"), value+"\nmore\n", 0o600)
	put(t, at("others"), value, 0o600)
	put(t, at("good"), value, 0o600)
	put(t, at("plain"), "#!/bin/sh\necho "+value+"\n", 0o644)
	put(t, at("writable"), "#!/bin/sh\necho "+value+"\n", 0o777)
	put(t, at("fails"), "#!/bin/sh\necho "+value+"\nexit 3\n", 0o755)
	put(t, at("floods"), "#!/bin/sh\nhead -c 100000000 /dev/zero | tr '\\0' x\n", 0o755)
	if err := errors.Join(
		os.Chown(at("others"), 1000, 0), os.Symlink("good", at("link")), unix.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("open"), 0o755),
		os.Chmod(at("open"), 0o777),
	); err != nil {
		t.Fatal(err)
	}
	put(t, at("open/file"), value, 0o600)
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	for _, tt := range []struct {
		source secretSource
		want   string
	}{
		{secretSource{File: at("missing")}, "no such file"},
		{secretSource{File: at("readable")}, "others than root may read"},
		{secretSource{File: at("short")}, "of 7 bytes: must be 8 to 4096"},
		{secretSource{File: at("long")}, "of 4097 bytes"},
		{secretSource{File: at("lines")}, "one line of printable"},
		{secretSource{File: at("others")}, "belongs to user 1000"},
		{secretSource{File: at("link")}, "is a symbolic link"},
		{secretSource{File: at("pipe")}, "not a regular file"},
		{secretSource{File: at("open/file")}, "root alone must control"},
		{secretSource{File: "/dev/zero"}, "not a regular file"},
		{secretSource{Credential: "acme"}, "LoadCredential=acme:FILE"},
		{secretSource{Command: []string{at("plain")}}, "must be executable"},
		{secretSource{Command: []string{at("writable")}}, "writable by root alone"},
		{secretSource{Command: []string{at("fails")}}, "exit status 3"},
		{secretSource{Command: []string{at("floods")}}, "has a secret of"},
	} {
		got, err := tt.source.Read()
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(fmt.Sprint(got, err), value) {
			t.Errorf("%+v: %q, %v, want %q", tt.source, got, err, tt.want)
		}
	}
}
