package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"corral/egress/authority"
	"corral/egress/control"
	"corral/egress/names"
	"corral/egress/relay"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/seccomp"
)

func TestMain(m *testing.M) {
	if os.Getenv(attemptsVariable) != "" {
		attempts()
		os.Exit(0)
	}
	os.Exit(sandboxtest.PrivateMounts(m))
}

const nobody = 65534

var alpha = netip.MustParseAddr("192.0.2.10")

// hosts are the names of the Internet of the tests.
type hosts map[string]netip.Addr

// Lookup implements names.Table.
func (h hosts) Lookup(name string, _ bool) (netip.Addr, names.Result) {
	if addr, ok := h[name]; ok {
		return addr, names.Found
	}
	return netip.Addr{}, names.Denied
}

// A program is a running corral-egress, in a network namespace that stands for the Internet.
type program struct {
	t        *testing.T
	internet *nettest.Space
	cmd      *exec.Cmd
	control  int
	etc      string
	stderr   *strings.Builder

	authority *relay.Issuer      // of the Internet
	ours      *control.Authority // that the job trusts; nil: none
}

// start starts the program with a filter. change can change how.
func start(t *testing.T, filter []byte, change func(*exec.Cmd)) *program {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	bin, err := os.Open(sandboxtest.Bin(t, "corral-egress"))
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	p := &program{t: t, internet: nettest.New(t, netip.PrefixFrom(alpha, 32)), stderr: &strings.Builder{}}
	trusted, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.authority = relay.NewIssuer(trusted)
	p.etc = etc(t, trusted)
	dns, err := net.FilePacketConn(p.internet.UDP(netip.MustParseAddrPort("127.0.0.1:53")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dns.Close() })
	go names.ServeUDP(dns, hosts{"alpha.example.org": alpha})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.control = pair[0]
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	t.Cleanup(func() { unix.Close(p.control) })
	p.cmd = &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", bin.Fd()), Args: []string{"corral-egress"}, Env: []string{"TZ=UTC", connectionsVariable + "=256,1792"}, Stderr: p.stderr,
		ExtraFiles: []*os.File{theirs, memory(t, filter)}, SysProcAttr: &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		},
	}
	if change != nil {
		change(p.cmd)
	}
	p.internet.Do(p.cmd.Start)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, unless the test failed
		_ = p.cmd.Wait()
	})
	return p
}

// memory returns a file with content.
func memory(t *testing.T, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "filter")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// etc mounts a directory as /etc, which says that the DNS server is at 127.0.0.1, and which authority to trust.
func etc(t *testing.T, trusted *authority.Authority) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ssl/certs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"resolv.conf": "nameserver 127.0.0.1\n", "hosts": "192.0.2.10 listed.example.org inspected.example.org\n",
		"ssl/certs/ca-certificates.crt": string(trusted.PEM()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), unix.Mount(dir, "/etc", "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func compile(t *testing.T) []byte {
	t.Helper()
	filter, err := seccomp.Compile(seccomp.Egress, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// exchange sends a message, and returns the text of the reply.
func (p *program) exchange(message []byte, files ...*os.File) string {
	p.t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if err := unix.Sendmsg(p.control, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, control.MaxMessage)
	n, err := unix.Read(p.control, b)
	if err != nil || n == 0 {
		p.t.Fatalf("no reply: %v; %s", err, p.stop())
	}
	r, err := control.ReadReply(b[:n])
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Text
}

// trust gives doors that are opened from now on an authority.
func (p *program) trust() {
	p.t.Helper()
	ours, err := authority.New(time.Now())
	p.ours = new(control.Authority)
	if err == nil {
		p.ours.Certificate, p.ours.Key, err = ours.Encode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// open opens door 1 for a job.
func (p *program) open(job *nettest.Space, rules string) {
	p.t.Helper()
	m, err := control.Encode(control.Open{Door: 1, Name: "job", Access: control.Access{Rules: json.RawMessage(rules)}, Authority: p.ours})
	if err != nil {
		p.t.Fatal(err)
	}
	resolver := netip.MustParseAddrPort("127.0.0.1:53")
	if why := p.exchange(m, job.UDP(resolver), job.Listener(resolver), job.TCP(), job.TCP()); why != "" {
		p.t.Fatal(why)
	}
}

// end closes door 1 and returns its report.
func (p *program) end() control.Summary {
	p.t.Helper()
	m, _ := control.Encode(control.Close{Door: 1})
	s, err := control.ReadSummary(p.exchange(m))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// stop closes the control socket and returns what the program wrote.
func (p *program) stop() string {
	p.t.Helper()
	_ = unix.Shutdown(p.control, unix.SHUT_RDWR)
	err := p.cmd.Wait()
	return fmt.Sprintf("%v: %s", err, p.stderr)
}

// client returns an HTTP client in the namespace of a job, which knows nothing but the job's DNS server.
func client(t *testing.T, job *nettest.Space) *http.Client {
	dial := func(_ context.Context, network, address string) (conn net.Conn, err error) {
		failed := job.Try(func() error {
			conn, err = net.Dial(network, address) // a literal address: the socket is made on this thread
			return err
		})
		return conn, failed
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		name, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addr, code := job.Lookup(name)
		if code != dnsmessage.RCodeSuccess {
			return nil, errors.New(code.String())
		}
		return dial(ctx, network, net.JoinHostPort(addr.String(), port))
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// site serves HTTP at port 80 and HTTPS at port 443 of alpha, and returns a client of a job that trusts it.
func (p *program) site(job *nettest.Space) *http.Client {
	p.t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.Host+" "), r.Body))
	})
	plain := &httptest.Server{Listener: p.internet.Listen(netip.AddrPortFrom(alpha, 80)), Config: &http.Server{Handler: answer}}
	plain.Start()
	p.t.Cleanup(plain.Close)
	secure := &httptest.Server{Listener: p.internet.Listen(netip.AddrPortFrom(alpha, 443)), Config: &http.Server{Handler: answer}}
	leaf, err := p.authority.Leaf("inspected.example.org")
	if err != nil {
		p.t.Fatal(err)
	}
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	secure.StartTLS()
	p.t.Cleanup(secure.Close)
	c := client(p.t, job)
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // its certificate is for another name
	return c
}

const rules = `{"allow":[{"host":"inspected.example.org","methods":["POST"]},{"host":"*.example.org"},{"host":"*.example.org","protocol":"http"}],"private":["192.0.2.10/32"]}`

// TestProgram: under its filter, the program connects a job to hosts by HTTP and TLS, with names of the DNS server and of the
// host's table, denies others, and ends with its control socket.
func TestProgram(t *testing.T) {
	p := start(t, compile(t), nil)
	job := nettest.Job(t)
	p.trust()
	p.open(job, rules)
	c := p.site(job)
	big := strings.Repeat("data ", 200_000)
	for _, url := range []string{"http://alpha.example.org/", "https://alpha.example.org/", "http://listed.example.org/", "https://inspected.example.org/"} {
		reply, err := c.Post(url, "text/plain", strings.NewReader(big))
		if err != nil {
			t.Fatalf("%s: %v; %s", url, err, p.stop())
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if _, name, _ := strings.Cut(url, "//"); err != nil || string(body) != strings.TrimSuffix(name, "/")+" "+big {
			t.Errorf("%s: %d bytes, %v", url, len(body), err)
		}
	}
	for url, want := range map[string]string{"http://example.net/": "RCodeNameError", "https://missing.example.org/": "", "http://alpha.example.org:81/": "refused"} {
		if reply, err := c.Get(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", url, reply, err)
		}
	}
	confined(t, p.cmd.Process.Pid)
	c.CloseIdleConnections()
	if s := p.end(); s.Connections != 5 || s.Denied == 0 || s.BytesUp < int64(4*len(big)) || s.BytesDown < int64(4*len(big)) {
		t.Errorf("%+v", s)
	}
	out := p.stop()
	if !strings.HasPrefix(out, "<nil>: ") || strings.Count(out, "msg=connection") != 5 || strings.Contains(out, "panic") {
		t.Error(out)
	}
}

// confined requires that the program, with all of its threads, has given up what it does not need.
func confined(t *testing.T, pid int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads, %v", len(tasks), err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, want := range []string{
			"NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", fmt.Sprintf("Uid:\t%d", nobody),
		} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s: no %q", task, want)
			}
		}
	}
	// The files of a process that is not dumpable belong to root.
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/environ", pid), &st); err != nil || st.Uid != 0 {
		t.Errorf("the program is dumpable: %v", err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if want := regexp.MustCompile(fmt.Sprintf(`(?m)^Max open files +%d +%d `, 4096, 4096)); err != nil || !want.Match(limits) {
		t.Errorf("the limits are %s, %v", limits, err)
	}
}

// TestConnections: the number of descriptors follows that of connections, and an impossible one is refused.
func TestConnections(t *testing.T) {
	for value, want := range map[string]string{
		"": "must be two positive numbers", "256": "must be two positive numbers", "0,1": "must be two positive numbers", "1,0": "must be two positive numbers",
		"1,x": "must be two positive numbers", "1,2,3": "must be two positive numbers", "2000,1000000000": "raise the supervisor's limit of open files",
	} {
		p := start(t, compile(t), func(c *exec.Cmd) { c.Env = append(c.Env, connectionsVariable+"="+value) })
		unix.Close(p.control)
		p.control = -1
		if err := p.cmd.Wait(); (err == nil) != strings.HasPrefix(want, "raise") || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%q: %v: %s", value, err, p.stderr)
		}
	}
	p := start(t, compile(t), func(c *exec.Cmd) { c.Env = append(c.Env, connectionsVariable+"=300,300") })
	p.open(nettest.Job(t), rules)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if want := regexp.MustCompile(`(?m)^Max open files +1112 +1112 `); err != nil || !want.Match(limits) {
		t.Errorf("the limits are %s, %v", limits, err)
	}
}

// TestNoFiles: without the filter's help, the program has no access to a file after its start: what is written to /etc/hosts later
// is not read.
func TestNoFiles(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.LandlockABI(1))
	everything := []byte{unix.BPF_RET, 0, 0, 0, 0, 0, 0xff, 0x7f} // SECCOMP_RET_ALLOW
	p := start(t, everything, nil)
	job := nettest.Job(t)
	p.open(job, rules) // it has read its files
	if err := os.WriteFile(filepath.Join(p.etc, "hosts"), []byte("192.0.2.10 late.example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := p.site(job)
	if reply, err := c.Get("http://late.example.org/"); err != nil || reply.StatusCode != http.StatusBadGateway {
		t.Errorf("a name that /etc/hosts got later: %v, %v, want 502", reply, err)
	}
	if reply, err := c.Get("http://listed.example.org/"); err != nil || reply.StatusCode != http.StatusOK {
		t.Errorf("a name that /etc/hosts had: %v, %v", reply, err)
	}
}

// TestRefuses: the program does not run with rights that it does not need, or without what it needs.
func TestRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*exec.Cmd)
		want   string
	}{
		"root":            {func(c *exec.Cmd) { c.SysProcAttr.Credential = nil }, "started as root"},
		"root's group":    {func(c *exec.Cmd) { c.SysProcAttr.Credential.Gid = 0 }, "started as root"},
		"a capability":    {func(c *exec.Cmd) { c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN} }, "with a capability"},
		"arguments":       {func(c *exec.Cmd) { c.Args = append(c.Args, "x") }, `arguments ["x"]`},
		"no filter":       {func(c *exec.Cmd) { c.ExtraFiles = c.ExtraFiles[:1] }, "filter of system calls"},
		"no socket":       {func(c *exec.Cmd) { c.ExtraFiles[0] = c.ExtraFiles[1] }, "control socket"},
		"an empty filter": {func(c *exec.Cmd) { c.ExtraFiles[1] = memory(t, nil) }, "has 0 bytes"},
		"half a filter":   {func(c *exec.Cmd) { c.ExtraFiles[1] = memory(t, make([]byte, 12)) }, "has 12 bytes"},
		"a long filter":   {func(c *exec.Cmd) { c.ExtraFiles[1] = memory(t, make([]byte, 8*4097)) }, "4096 instructions"},
		"no valid filter": {func(c *exec.Cmd) { c.ExtraFiles[1] = memory(t, make([]byte, 8)) }, "seccomp: invalid argument"},
	} {
		p := start(t, compile(t), tt.change)
		done := make(chan error, 1)
		go func() { done <- p.cmd.Wait() }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(p.stderr.String(), tt.want) {
				t.Errorf("%s: %v: %s", name, err, p.stderr)
			}
		case <-time.After(sandboxtest.Slow(30 * time.Second)):
			t.Fatalf("%s: it runs", name)
		}
	}
}
