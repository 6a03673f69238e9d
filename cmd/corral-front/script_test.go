package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/egress/store"

	"corral/front/commands"
	"corral/internal/config"
	"corral/internal/test/clitest"
	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
	"corral/store/authority"
	"corral/store/index"
	"corral/store/volume"
)

// help returns the help text of a command.
func help(command string) string {
	table := commands.Table()
	return table[slices.IndexFunc(table, func(r commands.Row) bool { return r.Name == command })].Help
}

// TestScripts runs the command lines in testdata/script, which need no supervisor.
func TestScripts(t *testing.T) {
	clitest.RunScripts(t, clitest.Suite{
		Dir: "testdata/script",
		Files: map[string]string{
			"example.yaml": config.Example, "help-policy": help("policy"), "help-changes": help("changes"), "help-index": help("index"),
		},
		Commands: map[string]clitest.Command{
			// audit-log DIR creates a state directory whose audit log has a few jobs. HASH is the hash of the last record.
			"audit-log": func(t testing.TB, dir string, args []string) []string {
				state := filepath.Join(dir, args[0])
				if err := os.Mkdir(state, 0o755); err != nil {
					t.Fatal(err)
				}
				newAudit(t, state)
				return []string{"HASH=" + auditReport(t, state).Hash}
			},
			// network-log DIR creates a state directory whose audit log has jobs with and without network access.
			"network-log": func(t testing.TB, dir string, args []string) []string {
				state := filepath.Join(dir, args[0])
				if err := os.Mkdir(state, 0o755); err != nil {
					t.Fatal(err)
				}
				newNetworkAudit(t, state)
				return nil
			},
			// make-authorities DIR USER… makes an authority for each user in a state directory.
			"make-authorities": func(t testing.TB, dir string, args []string) []string {
				makeAuthorities(t, filepath.Join(dir, args[0]), args[1:])
				return nil
			},
			// keep-packages DIR USER NAME makes the volume of a user's packages in DIR. It has one package of 6 bytes, and a file of 14
			// bytes that is none.
			"keep-packages": func(t testing.TB, dir string, args []string) []string {
				keepPackages(t, filepath.Join(dir, args[0]), args[1], args[2])
				return nil
			},
			// keep-output DIR FILE FILE stores both files as the output of one job in a state directory, under HANDLE.
			"keep-output": func(t testing.TB, dir string, args []string) []string {
				state := filepath.Join(dir, args[0])
				if err := os.Mkdir(state, 0o700); err != nil {
					t.Fatal(err)
				}
				return []string{"HANDLE=" + mcptest.Keep(t, state, string(read(t, filepath.Join(dir, args[1]))), string(read(t, filepath.Join(dir, args[2]))))}
			},
			// index-text DIR CLIENT TEXT indexes a line for the repository app in a state directory.
			"index-text": func(t testing.TB, dir string, args []string) []string {
				indexText(t, filepath.Join(dir, args[0]), index.Base{Repo: "app", Principal: args[1]}, args[2]+"\n")
				return nil
			},
		},
	})
}

// TestScriptsInJails runs the command lines in testdata/jails with one supervisor: SOCKET is its socket, STATE its
// state directory.
func TestScriptsInJails(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true})
	clitest.RunScripts(t, clitest.Suite{Dir: "testdata/jails", Env: []string{"SOCKET=" + d.Socket, "STATE=" + d.State}})
}

func makeAuthorities(t testing.TB, state string, users []string) {
	t.Helper()
	if err := os.MkdirAll(state, 0o755); err != nil {
		t.Fatal(err)
	}
	s := authority.New(filepath.Join(state, "authority"))
	for _, user := range users {
		uid, err := strconv.ParseUint(user, 10, 32)
		if err == nil {
			_, err = s.Current(uint32(uid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func keepPackages(t testing.TB, cache, user, name string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(cache, 0o700))
	all, err := os.Open(cache)
	must(err)
	defer all.Close()
	dir, err := volume.Open(all, user+".1", volume.Size{Bytes: volume.MinBytes, Inodes: 100})
	must(err)
	s, err := store.Open(dir, 1<<20) // takes over dir
	must(err)
	w := s.Create()
	_, err = io.WriteString(w, "hello\n")
	must(err)
	sum := sha256.Sum256([]byte("hello\n"))
	must(w.Commit(store.Entry{Key: "k", Kind: "npm", Host: "a.example.org", Name: name, SHA256: hex.EncodeToString(sum[:]), Checked: 1}))
	stray, err := unix.Openat(int(dir.Fd()), "other", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	must(err)
	_, err = unix.Write(stray, []byte("not a package\n"))
	must(errors.Join(err, unix.Close(stray)))
	must(s.Close())
}

// indexText indexes a text in a state directory, as a server does.
func indexText(t testing.TB, state string, b index.Base, text string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := index.Open(f, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := x.Add(t.Context(), b, index.Source{Label: "notes", Fixed: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}
