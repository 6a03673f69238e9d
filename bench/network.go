package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/job"
)

// The server of the mode network: a name and an address that exist in its network namespace alone.
const (
	serverName = "server.example.org" // RFC 2606
	serverAddr = "192.0.2.1"          // RFC 5737
)

// Ports of the server: what it does there.
const (
	firstPort = 7001 // sends a byte, and waits
	readPort  = 7002 // sends -bytes
	writePort = 7003 // reads to the end, then sends a byte
	tlsPort   = 443  // the first one, over TLS
)

// networkSettings let all jobs reach the server.
const networkSettings = `network:
  allow:
    - {host: server.example.org, ports: [7001, 7002, 7003], protocol: tcp}
    - {host: server.example.org}
  private: [192.0.2.1/32]
`

// inNetwork is the environment variable of the process in the namespaces of the mode.
const inNetwork = "CORRAL_BENCH_NETWORK"

// networkMode measures what doors cost. It starts the benchmark again in a network namespace of its own with the server.
func networkMode(ctx context.Context, o *options) error {
	if os.Getenv(inNetwork) == "" {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inNetwork+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		return cmd.Run()
	}
	stop, err := serveNetwork(o.bytes)
	if err != nil {
		return err
	}
	defer stop()
	r := newResult("network", "Network access by rules", "what", "without a door", "through a door", "difference", "ratio",
		"difference at p10")
	for _, part := range []func(context.Context, *options, *Result) error{jobCost, doorCost} {
		if err := part(ctx, o, r); err != nil {
			return err
		}
	}
	r.note("At p10 is the difference of the times that a tenth of the rounds stay below: on a busy machine, waiting for a processor is in the medians.")
	r.note("Without a door: a job that asks for no network, or a process beside the jail that connects to the same server. Both run in turn. All connections have the congestion control reno.")
	return o.publish(r)
}

// serveNetwork makes the network and starts the server.
func serveNetwork(bytes int64) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "corral-bench-hosts-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is mounted stays
	hosts := filepath.Join(dir, "hosts")
	err = os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+serverAddr+" "+serverName+"\n"), 0o644) //nolint:gosec // everybody reads it
	if err != nil {
		return nil, err
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("mount over /etc/hosts: %w", err)
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", serverAddr + "/24", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	// As in the jobs' network. Others, such as bbr, estimate how fast they may send, on devices that are as fast as the processor.
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte("reno"), 0); err != nil {
		return nil, err
	}
	var listeners []net.Listener
	stop = func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	secure, err := tlsServer()
	if err != nil {
		return nil, err
	}
	for port, serve := range map[int]func(net.Conn){
		firstPort: serveFirst, readPort: serveRead(bytes), writePort: serveWrite,
		tlsPort: secure,
	} {
		l, err := net.Listen("tcp", net.JoinHostPort(serverAddr, strconv.Itoa(port)))
		if err != nil {
			stop()
			return nil, err
		}
		listeners = append(listeners, l)
		go accept(l, serve)
	}
	return stop, nil
}

// accept serves connections until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func serveFirst(c net.Conn) {
	_, _ = c.Write([]byte{'x'})
	_, _ = io.Copy(io.Discard, c)
}

func serveRead(bytes int64) func(net.Conn) {
	buffer := make([]byte, clientBuffer)
	return func(c net.Conn) {
		for left := bytes; left > 0; left -= int64(len(buffer)) {
			if _, err := c.Write(buffer[:min(left, int64(len(buffer)))]); err != nil {
				return
			}
		}
	}
}

func serveWrite(c net.Conn) {
	for buffer := make([]byte, clientBuffer); ; {
		if _, err := c.Read(buffer); err != nil {
			break
		}
	}
	_, _ = c.Write([]byte{'x'})
}

// tlsServer returns serveFirst over TLS.
func tlsServer() (func(net.Conn), error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{serverName}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13}
	return func(c net.Conn) { serveFirst(tls.Server(c, config)) }, nil
}

// networkPart calls f with a supervisor whose jobs reach the server, and a connection to it.
func (o *options) networkPart(ctx context.Context, f func(context.Context, *options, *client.Client) error) error {
	own := *o
	own.settings = networkSettings
	return own.part(ctx, 1, f)
}

// jobCost measures a job that has its slot made with a door, or without, and one whose slot is ready.
func jobCost(ctx context.Context, o *options, r *Result) error {
	for _, part := range []struct {
		what     string
		slotless bool
		pace     pace
	}{
		{"a job whose slot is made when it comes, ms", true, pace{1, o.idle}},
		{"a job whose slot is ready, ms", false, pace{1, max(o.idle, readyPause)}},
	} {
		if !o.chosen(part.what) {
			continue
		}
		own := *o
		own.slotless = part.slotless
		err := own.networkPart(ctx, func(ctx context.Context, o *options, c *client.Client) error {
			row := func(name, network string) *Row {
				spec := job.Spec{Repo: o.repo, Args: []string{program}, Network: network}
				return &Row{Name: name, Run: func() error { return runJob(c, spec) }}
			}
			rows := []*Row{row("none", job.NoNetwork), row("door", "")}
			if err := measure(ctx, o, rows, o.rounds, part.pace); err != nil {
				return err
			}
			r.Rounds = max(r.Rounds, len(rows[0].times))
			r.compare(part.what, rows[0], rows[1])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chosen reports whether -only has a row of the mode.
func (o *options) chosen(what string) bool { return strings.Contains(what, o.only) }

// readyPause is the time in which a slot is made for the next job.
const readyPause = 20 * time.Millisecond

// compare adds a row about two rows that ran in turn: medians, and the median of differences and ratios in the same round.
func (r *Result) compare(what string, without, with *Row) {
	a, b := without.against(without), with.against(without)
	fast := quantile(millis(with.times), 0.1) - quantile(millis(without.times), 0.1)
	r.add(what, fmt.Sprintf("%.3f", a.median), fmt.Sprintf("%.3f", b.median), fmt.Sprintf("%+.3f", b.added), fmt.Sprintf("%.2f", b.ratio),
		fmt.Sprintf("%+.3f", fast))
}

func millis(times []time.Duration) (list []float64) {
	for _, d := range times {
		list = append(list, ms(d))
	}
	return list
}

// doorCost measures connections and bytes through a door.
func doorCost(ctx context.Context, o *options, r *Result) error {
	return o.networkPart(ctx, func(ctx context.Context, o *options, c *client.Client) error {
		direct, err := processClient()
		if err != nil {
			return err
		}
		defer func() { _ = direct.end() }()
		inside, err := jobClient(o, c)
		if err != nil {
			return err
		}
		defer func() { _ = inside.end() }()
		for _, m := range []struct {
			what   string
			line   string // with the address
			port   int
			rounds int
		}{
			{"the first byte of a connection, ms", "first %s", firstPort, o.rounds},
			{"the first byte over TLS, ms", "tls %s", tlsPort, o.rounds},
			{fmt.Sprintf("reading %d MiB, ms", o.bytes>>20), "read %s", readPort, max(o.rounds/20, 3)},
			{fmt.Sprintf("writing %d MiB, ms", o.bytes>>20), "write %s " + strconv.FormatInt(o.bytes, 10), writePort, max(o.rounds/20, 3)},
		} {
			if !o.chosen(m.what) {
				continue
			}
			a, b, err := inTurn(ctx, o, direct, inside, m.line, m.port, m.rounds)
			if err != nil {
				return fmt.Errorf("%s: %w", m.what, err)
			}
			r.compare(m.what, a, b)
		}
		return nil
	})
}

// inTurn has two clients do the same, one after the other.
func inTurn(ctx context.Context, o *options, direct, inside *driver, line string, port, rounds int) (a, b *Row, err error) {
	a, b = &Row{}, &Row{}
	at, err := inside.ask("lookup %s", serverName)
	if err != nil {
		return nil, nil, err
	}
	for n := -1; n < rounds && ctx.Err() == nil && (n <= 0 || !o.over()); n++ { // the first round is not counted
		for _, one := range []struct {
			d   *driver
			at  string
			row *Row
		}{{direct, serverAddr, a}, {inside, at, b}} {
			took, err := one.d.time(line, net.JoinHostPort(one.at, strconv.Itoa(port)))
			if err != nil {
				return nil, nil, err
			}
			if n >= 0 {
				one.row.times = append(one.row.times, took)
			}
		}
	}
	return a, b, ctx.Err()
}

// processClient starts a client beside the jail.
func processClient() (*driver, error) {
	cmd := exec.Command("/proc/self/exe", clientWord)
	cmd.Stderr = os.Stderr
	read, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = read
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	read.Close()
	if err != nil {
		theirs.Close()
		return nil, err
	}
	return &driver{to: theirs, from: bufio.NewScanner(out), end: func() error { return errors.Join(theirs.Close(), cmd.Wait()) }}, nil
}

// jobClient starts a client in a job.
func jobClient(o *options, c *client.Client) (*driver, error) {
	self, err := os.ReadFile("/proc/self/exe")
	program := filepath.Join(o.repo, "client")
	if err == nil {
		err = replace(program, self)
	}
	if err = errors.Join(err, os.Chmod(program, 0o755)); err != nil { //nolint:gosec // a job executes it
		return nil, err
	}
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, failed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		defer said.Close()
		_, _ = io.Copy(os.Stderr, said)
	}()
	stdio := job.Stdio{Stdin: in, Stdout: out, Stderr: failed} // pipes, which Start takes over
	run, err := c.Start(job.Spec{Repo: o.repo, Args: []string{program, clientWord}}, stdio, nil)
	if err != nil {
		return nil, err
	}
	return &driver{to: to, from: bufio.NewScanner(from), end: func() error {
		to.Close()
		result, err := run.Wait()
		from.Close()
		if err == nil && result.Status != job.Success {
			err = fmt.Errorf("%+v", result)
		}
		return err
	}}, nil
}
