package config

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"corral/job"
	"corral/policy/network"
)

func lookup(name string) (uint32, error) {
	if id, ok := map[string]uint32{"alice": 1500, "root": 0}[name]; ok {
		return id, nil
	}
	return 0, errors.New("no such user")
}

// parseOne parses one file.
func parseOne(file string, content []byte, lookup func(string) (uint32, error)) (Config, error) {
	return parse([]Files{{Main: &File{file, content}}}, lookup)
}

const full = `version: 1
uids: {base: 0x10000000, size: 65536}
repos:
  - path: /srv/projects/app
    users: [alice, 1001]
  - {path: "/srv/a b", network: {}}
  - path: /srv/b
    id: Das B
    profile: tight
    workspace: direct
    protect: all
    defaults: {memory: 1GiB}
    ceilings: {timeout: 10s}
    network: {allow: [{preset: npm}, {host: "*.example.org", ports: [443, 8443]}], bytes: {up: 1MiB}}
    env: {allow: []}
    runtimes: [shell, python]
toolchains: [/usr/local/go, /root/go/pkg/mod]
own_directories: true
defaults: {memory: 1.5g, pids: 256, cpus: 2, timeout: 60s, kill_after: 5s, tmp: 64MiB, tmp_inodes: 1000,
  disk: 1GiB, inodes: 10000, file_size: 4096, open_files: 1024}
ceilings:
  memory: 4GiB
  cpus: 3.5
  timeout: 3600
  disk: unlimited
profiles:
  tight: {syscalls: strict, workspace: readonly, defaults: {pids: 10}, ceilings: {pids: 20}}
  empty: {}
network:
  allow:
    - preset: go
    - host: db.example.org
      ports: [5432]
      protocol: tcp
  deny: [telemetry.example.org, "*.example.net"]
  private: [10.1.0.0/16, "fd00::/8"]
  bytes: {up: 50MiB, down: 2GiB}
network_cache: {size: 20GiB}
network_connections: {job: 300, user: 3000}
jail_idle: 90
max_jobs: 10
max_jobs_per_user: 4
user_memory: 3GiB
max_jails: 6
warm_slots: 0
max_warm_slots: 7
audit: {fsync: each, max_size: 1MiB, keep: 3, keep_for: 48h, user_daily: 1GiB, record: code}
layers: {disk: 1GiB, inodes: 1000, reserve: 64MiB, max_disk: 2GiB, max_inodes: 2000, idle: 1m, max_idle: 1h, keep: 24h}
runtime:
  enabled: false
  runtimes: [python, shell, go]
  executables: [python3, g++, /usr/bin/node]
  env: {allow: [HTTP_PROXY, _x1]}
  runtime_env: {python: {PYTHONPATH: "a b", N: 1, F: 1.50}, go: {GOFLAGS: -mod=mod}}
  max_duration: 10m
  max_concurrent_jobs: 2
  queue_wait: 1.5s
  queue_length: 5
  rules: /etc/corral/rules.star
  defaults: {timeout: 2m}
  network: "npm, example.org:443"
  tool_network: {run: none}
output: {keep: 1MiB, redact: false}
artifacts: {ttl: 1h, max_count: 5, max_bytes: 2MiB, fsync: each}
principals:
  - {name: ci, token_sha256: "` + hash1 + `", repos: [app, Das B], tools: [runtime_execute], max_jobs: 3, output_daily: 2GiB}
  - name: ada.l-1
    token_sha256: "` + hash2 + `"
http:
  listen: "[::1]:80"
  allowed_hosts: [a.example, "b.example:8080"]
  allowed_origins: ["https://a.example", "vscode-webview://x1"]
  max_body: 64KiB
  session_idle: 1m
exec_server:
  listen: [stdio, "unix:///run/x/s", "ws://[::1]:0"]
  allowed_hosts: [c.example]
  peers: [alice, 7]
  output_budget: 32MiB
  full_access: tight
sandbox:
  enabled: false
  repo: Das B
  workspace: readonly
  timeout: 30s
  max_timeout: 3h
  output_limit: 1MiB
  partial_output: true
  session_timeout: 1m
  image: debian-12
  disk: 1GiB
  max_sessions: 3
ctx:
  enabled: false
  repo: app
  background_life: 2h
  max_background: 2
index:
  enabled: false
  ttl: 36h
  max_bytes: 64MiB
starlark:
  enabled: false
  repo: app
  memory: 64MiB
  max_wall: 5s
telemetry:
  traces: otlp
  file: /var/log/spans.json
  endpoint: https://otel.example.org
  headers_file: /etc/corral/headers
  service: builds
`

// SHA-256 of "1" and "2".
const (
	hash1 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
	hash2 = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"
)

func TestFull(t *testing.T) {
	yes := true
	direct, readonly := job.Direct, job.ReadOnly
	want := Config{
		UIDs: UIDs{0x10000000, 65536},
		Repos: []Repo{
			{ID: "app", Path: "/srv/projects/app", Users: []uint32{1500, 1001}},
			{ID: "a b", Path: "/srv/a b", Network: &network.Rules{}},
			{
				ID: "Das B", Path: "/srv/b", Profile: "tight", Workspace: &direct, Protect: job.ProtectAll, Defaults: job.Limits{Memory: 1 << 30},
				Ceilings: job.Limits{Wall: 10 * time.Second}, Env: []string{}, Runtimes: []string{"shell", "python"},
				Network: &network.Rules{
					Allow: []network.Rule{{Preset: "npm"}, {Host: "*.example.org", Ports: []uint16{443, 8443}}}, Bytes: network.Bytes{Up: 1 << 20},
				},
			},
		},
		Toolchains:     []string{"/usr/local/go", "/root/go/pkg/mod"},
		OwnDirectories: &yes,
		Defaults: job.Limits{
			KillAfter: 5 * time.Second, Memory: 3 << 29, MilliCPUs: 2000, PIDs: 256, Wall: time.Minute, Tmp: 64 << 20, TmpInodes: 1000,
			Disk: 1 << 30, Inodes: 10000, FileSize: 4096, OpenFiles: 1024,
		},
		Ceilings:           job.Limits{Memory: 4 << 30, MilliCPUs: 3500, Wall: time.Hour, Disk: job.Unlimited},
		NetworkCache:       NetworkCache{Size: 20 << 30},
		NetworkConnections: NetworkConnections{Job: 300, User: 3000},
		JailIdle:           90 * time.Second,
		MaxJobs:            10, MaxJobsPerUser: 4, UserMemory: 3 << 30, MaxJails: 6, WarmSlots: 0, MaxWarmSlots: 7,
		Audit:  Audit{Fsync: Each, MaxSize: 1 << 20, Keep: 3, KeepFor: 48 * time.Hour, UserDaily: 1 << 30, Record: job.RecordCode},
		Layers: Layers{Disk: 1 << 30, Inodes: 1000, Reserve: 64 << 20, MaxDisk: 2 << 30, MaxInodes: 2000, Idle: time.Minute, MaxIdle: time.Hour, Keep: 24 * time.Hour},
		Profiles: map[string]Profile{
			"tight": {"strict", &readonly, job.Limits{PIDs: 10}, job.Limits{PIDs: 20}}, "empty": {},
		},
		Network: network.Rules{
			Allow:   []network.Rule{{Preset: "go"}, {Host: "db.example.org", Ports: []uint16{5432}, Protocol: "tcp"}},
			Deny:    []string{"telemetry.example.org", "*.example.net"},
			Private: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")},
			Bytes:   network.Bytes{Up: 50 << 20, Down: 2 << 30},
		},
		Runtime: Runtime{
			Runtimes: []string{"python", "shell", "go"}, Executables: []string{"python3", "g++", "/usr/bin/node"}, Env: []string{"HTTP_PROXY", "_x1"},
			RuntimeEnv: map[string]map[string]string{
				"python": {"PYTHONPATH": "a b", "N": "1", "F": "1.50"}, "go": {"GOFLAGS": "-mod=mod"},
			},
			MaxDuration: 10 * time.Minute, MaxConcurrentJobs: 2, QueueWait: 1500 * time.Millisecond, QueueLength: 5,
			Rules: "/etc/corral/rules.star", Defaults: job.Limits{Wall: 2 * time.Minute},
			Network: "npm example.org:443", ToolNetwork: map[string]string{"run": "none"},
		},
		Output:    Output{Keep: 1 << 20},
		Artifacts: Artifacts{TTL: time.Hour, MaxCount: 5, MaxBytes: 2 << 20, Fsync: Each},
		Principals: Principals{
			{Name: "ci", Hash: sha256.Sum256([]byte("1")), Repos: []string{"app", "Das B"}, Tools: []string{"runtime_execute"}, MaxJobs: 3, OutputDaily: 2 << 30},
			{Name: "ada.l-1", Hash: sha256.Sum256([]byte("2"))},
		},
		HTTP: HTTP{
			Listen: "[::1]:80", AllowedHosts: []string{"a.example", "b.example:8080"},
			AllowedOrigins: []string{"https://a.example", "vscode-webview://x1"}, MaxBody: 64 << 10, SessionIdle: time.Minute,
		},
		ExecServer: ExecServer{
			Listen:       []Listen{{Kind: ListenStdio}, {ListenUnix, "/run/x/s"}, {ListenWeb, "[::1]:0"}},
			AllowedHosts: []string{"c.example"}, Peers: []uint32{1500, 7}, OutputBudget: 32 << 20, FullAccess: "tight",
		},
		Sandbox: Sandbox{
			Repo: "Das B", Timeout: 30 * time.Second, MaxTimeout: 3 * time.Hour, OutputLimit: 1 << 20, PartialOutput: true,
			Workspace: new(job.ReadOnly), SessionTimeout: time.Minute, Image: "debian-12", Disk: 1 << 30, MaxSessions: 3,
		},
		Ctx:      Ctx{Repo: "app", BackgroundLife: 2 * time.Hour, MaxBackground: 2},
		Index:    Index{TTL: 36 * time.Hour, MaxBytes: 64 << 20},
		Starlark: Starlark{Repo: "app", Memory: 64 << 20, MaxWall: 5 * time.Second},
		Telemetry: Telemetry{
			Traces: TracesOTLP, File: "/var/log/spans.json", Endpoint: "https://otel.example.org", HeadersFile: "/etc/corral/headers",
			Service: "builds",
		},
	}
	got, err := parseOne("f", []byte(full), lookup)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestDefaults(t *testing.T) {
	got, err := parseOne("f", []byte("version: 1\n"), lookup)
	if err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("got %+v, %v; want %+v", got, err, Default())
	}
	for _, f := range got.Defaults.Fields() {
		if *f.Value == 0 {
			t.Errorf("no default for %s", f.Name)
		}
	}
}

// TestDefaultsLoweredToCeilings: a built-in default above a ceiling is lowered to it.
func TestDefaultsLoweredToCeilings(t *testing.T) {
	got, err := parseOne("f", []byte("version: 1\nceilings: {memory: 1GiB, timeout: 10m, pids: 4096}\n"), lookup)
	want := job.Defaults()
	want.Memory, want.Wall = 1<<30, 10*time.Minute
	if err != nil || got.Defaults != want {
		t.Errorf("got %+v, %v; want %+v", got.Defaults, err, want)
	}
	if err := got.Defaults.Within(got.Ceilings); err != nil {
		t.Errorf("a job that requests nothing: %v", err)
	}
}

func TestServesOwn(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		said   *bool
		listed int
		want   bool
	}{{nil, 0, true}, {nil, 1, false}, {&yes, 1, true}, {&no, 0, false}} {
		if got := (Config{OwnDirectories: tt.said}).ServesOwn(tt.listed); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// TestString: parsing what String returns gives the same configuration.
func TestString(t *testing.T) {
	for _, file := range []string{
		"version: 1\n", full, "version: 1\nnetwork: {allow: [], deny: []}\nrepos: [{path: /a, network: {allow: []}}]\n",
		"version: 1\nnetwork: {allow: [{host: \"no\"}, {host: \"1.e3\"}, {host: _a.b, protocol: http}]}\n", "version: 1\nceilings: {memory: 1GiB}\n", "version: 1\nown_directories: false\nrepos: [{path: \"/a\\tb: c\", id: \"ä: #\"}]\n",
	} {
		c, err := parseOne("f", []byte(file), lookup)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseOne("shown", []byte(c.String()), lookup)
		if err != nil || !reflect.DeepEqual(c, back) {
			t.Errorf("%s\nshown as\n%s\nis %+v, %v", file, c, back, err)
		}
	}
}

// FuzzParse: whatever is in a file, it is refused as a whole, or its configuration is within bounds and String describes it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{full, "", "version: 1\ndefaults: {cpus: 1e300}\n", "&a [*a]\n", "version: 1\nrepos: [{path: \"/\\x00\"}]\n"} {
		f.Add([]byte(seed))
	}
	f.Add([]byte("path: /x\nid: y\nowner: 7\ndefaults: {pids: 9}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		check(t, Files{Main: &File{"f", content}})
		check(t, Files{Repos: []File{{"r", content}}})
	})
}

func check(t *testing.T, files Files) {
	c, err := parse([]Files{files}, lookup)
	if err != nil {
		if err.Error() == "" || !reflect.DeepEqual(c, Config{}) {
			t.Errorf("%q and %+v", err, c)
		}
		return
	}
	if err := errors.Join(c.Defaults.Check(), c.Ceilings.Check(), c.Defaults.Within(c.Ceilings)); err != nil {
		t.Error(err)
	}
	back, err := parseOne("shown", []byte(c.String()), lookup)
	if err != nil || !reflect.DeepEqual(c, back) {
		t.Errorf("shown as\n%s\nis %+v, %v; was %+v", c, back, err, c)
	}
}
