package main

import (
	"os"
	"path/filepath"
	"testing"

	"corral/front/cli/changes"
	indexcmd "corral/front/cli/index"
	"corral/front/cli/policy"
	"corral/internal/config"
	"corral/internal/test/sandboxtest"
	"corral/internal/test/sandboxtest/scripttest"
	"corral/internal/test/storetest"
	"corral/store/index"
)

// TestScripts runs the command lines in testdata/script, which need no supervisor.
func TestScripts(t *testing.T) {
	scripttest.Run(t, scripttest.Suite{
		Dir: "testdata/script",
		Files: map[string]string{
			"example.yaml": config.Example, "help-policy": policy.Help, "help-changes": changes.Help, "help-index": indexcmd.Help,
		},
		Commands: map[string]scripttest.Command{
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
			// keep-output DIR FILE FILE stores both files as the output of one job in a state directory, under HANDLE.
			"keep-output": func(t testing.TB, dir string, args []string) []string {
				state := filepath.Join(dir, args[0])
				if err := os.Mkdir(state, 0o700); err != nil {
					t.Fatal(err)
				}
				return []string{"HANDLE=" + storetest.Keep(t, state, string(read(t, filepath.Join(dir, args[1]))), string(read(t, filepath.Join(dir, args[2]))))}
			},
			// index-text DIR CLIENT TEXT indexes a line for the repository app in a state directory.
			"index-text": func(t testing.TB, dir string, args []string) []string {
				storetest.Index(t, filepath.Join(dir, args[0]), index.Base{Repo: "app", Principal: args[1]}, args[2]+"\n")
				return nil
			},
		},
	})
}

// TestScriptsInJails runs the command lines in testdata/jails with one supervisor: SOCKET is its socket, STATE its
// state directory.
func TestScriptsInJails(t *testing.T) {
	sandboxtest.RequireJails(t)
	// The scripts run in parallel and for one user, whose layers may have a part of the file system only.
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true, Config: "defaults: {disk: 256MiB}\n"})
	scripttest.Run(t, scripttest.Suite{Dir: "testdata/jails", Env: []string{"SOCKET=" + d.Socket, "STATE=" + d.State}})
}
