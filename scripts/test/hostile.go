package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// hostileConfig is a valid configuration with which hardly any test can pass. It is where an installed corral has its
// configuration, and in the home directory: a test whose programs read it instead of the test's own configuration fails.
const hostileConfig = `version: 1
defaults: {memory: 16MiB, pids: 3, timeout: 1s, tmp: 1MiB, open_files: 64}
ceilings: {memory: 16MiB, pids: 3, timeout: 1s, tmp: 1MiB, open_files: 64}
max_jobs: 1
max_jobs_per_user: 1
max_jails: 1
`

// becomeHostile makes what tests must not use: the configuration of an installed corral, and a service that ends each
// connection.
func (m *machine) becomeHostile() error {
	user := filepath.Join(m.dir, "home", ".config", "corral")
	if err := errors.Join(
		os.MkdirAll(user, 0o755),
		os.WriteFile(filepath.Join(user, "config.yaml"), []byte(hostileConfig), 0o644),
		os.WriteFile("/etc/corral/config.yaml", []byte(hostileConfig), 0o644),
	); err != nil {
		return err
	}
	const socket = "/run/corral/corral.sock"
	service, err := net.Listen("unixpacket", socket)
	if err != nil {
		return fmt.Errorf("hostile service: %w", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := service.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return nil
}
