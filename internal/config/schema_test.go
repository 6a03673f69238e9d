package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"corral/job"
)

// readSchema returns the schema, and a function that validates a file with it.
func readSchema(t *testing.T) (*jsonschema.Schema, func(content string) error) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(Schema), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return &s, func(content string) error {
		var v any
		if err := yaml.Unmarshal([]byte(content), &v); err != nil {
			return err
		}
		return resolved.Validate(v)
	}
}

// TestSchemaDefaults: a file of all defaults of the schema changes nothing.
func TestSchemaDefaults(t *testing.T) {
	s, _ := readSchema(t)
	file := map[string]any{"version": 1}
	for name, p := range s.Properties {
		if p.Default != nil {
			file[name] = p.Default
		}
		section := map[string]any{}
		for name, p := range p.Properties {
			if p.Default != nil {
				section[name] = p.Default
			}
		}
		if len(section) > 0 {
			file[name] = section
		}
	}
	content, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(file) < 10 {
		t.Errorf("few defaults: %s", content)
	}
	if c, err := parseOne("f", content, lookup); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%s\nis %+v, %v", content, c, err)
	}
}

// TestSchemaLimits: the schema has the bounds of job.Fields, and unlimited where they do.
func TestSchemaLimits(t *testing.T) {
	_, validate := readSchema(t)
	accepts := func(key, value string) bool {
		return validate("version: 1\ndefaults: {"+key+": "+value+"}\n") == nil
	}
	var l job.Limits
	for _, f := range l.Fields() {
		if got := accepts(f.Key(), "unlimited"); got != f.Liftable {
			t.Errorf("%s: unlimited is %t for the schema", f.Name, got)
		}
		if f.Unit != job.Count {
			continue
		}
		for v, want := range map[int64]bool{f.Min: true, f.Max: true, f.Min - 1: false, f.Max + 1: false} {
			if got := accepts(f.Key(), fmt.Sprint(v)); got != want {
				t.Errorf("%s: %d is %t for the schema", f.Name, v, got)
			}
		}
	}
}

// TestSchemaAgrees: the schema accepts what the parser accepts, and refuses mistakes in forms that it has a rule of its own for. TestErrors
// has the schema refuse the mistakes of its table.
func TestSchemaAgrees(t *testing.T) {
	_, validate := readSchema(t)
	for _, tt := range []struct {
		file string
		want bool
	}{
		{full, true},
		{"version: 1", true},
		{Example, true},
		{"version: 1\ndefaults: {memory: 1.5g}", true},
		{"version: 1\ndefaults: {memory: 512 MB}", true},
		{"version: 1\ndefaults: {timeout: 1h30m}", true},
		{"version: 1\ndefaults: {timeout: 1.5}", true},
		{"version: 1\ndefaults: {cpus: 0.5}", true},
		{"version: 1\ndefaults: {cpus: 0}", false},
		{"version: 1\nrepos: [{path: /x, id: ''}]", false},
		{"version: 1\nrepos: [{path: /x, id: " + strings.Repeat("ä", 129) + "}]", false},
		{"version: 1\nrepos: [{path: /x, id: " + strings.Repeat("ä", 128) + "}]", true},
		{"version: 1\nrepos: [{path: /x, workspace: overlay, protect: hooks}, {path: /y, protect: none}]", true},
		{"version: 1\nrepos: [{path: /x, env: {allow: []}}]", true},
		{"version: 1\nprofiles: {a: {sysclls: strict}}", false},
		{"version: 1\nnetwork: {allow: [{preset: npm}, {host: '*.example.org', ports: [1, 65535], protocol: tcp}], deny: [a_b.c], private: ['fd00::/8']}", true},
		{"version: 1\nnetwork: {bytes: {up: 1MiB, down: 2048}}", true},
		{"version: 1\nnetwork: {bytes: {in: 1MiB}}", false},
		{"version: 1\nnetwork: {allow: [npm]}", false},
		{"version: 1\nnetwork: {allow: [{host: Example.org}]}", false},
		{"version: 1\nnetwork: {allow: [{host: 'example.org:443'}]}", false},
		{"version: 1\nrepos: [{path: /x, network: {}}]", true},
		{"version: 1\nrepos: [{path: /x, network: {allow: [{host: a.b}], deny: []}}]", true},
		{"version: 1\nrepos: [{path: /x, network: [npm]}]", false},
		{"version: 1\naudit: {keep: unlimited, record: argv}", true},
		{"version: 1\nruntime: {runtime_env: {python: {A: 1, B: x, C: 1.5}}}", true},
		{"version: 1\nruntime: {network: none, tool_network: {run: npm *.example.org}}", true},
		{"version: 1\nruntime: {queue_wait: 0}", true},
		{"version: 1\nruntime: {queue_wait: 0s}", true},
		{"version: 1\nruntime: {queue_wait: '0'}", true},
		{"version: 1\nexec_server: {listen: []}", false},
		{"version: 1\nexec_server: {listen: stdio}", false},
		{"version: 1\nexec_server: {listen: ['wss://localhost:1']}", false},
		{"version: 1\nexec_server: {listen: ['stdio://', 'ws://localhost:0']}", true},
		{"version: 1\nexec_server: {full_access: ''}", false},
		{"version: 1\nsandbox: {image: debian-12, max_sessions: 128}", true},
		{"version: 1\nsandbox: {max_sessions: 129}", false},
		{"version: 1\nsandbox: {max_sessions: 0}", false},
		{"version: 1\nctx: {max_background: 1024}", true},
		{"version: 1\nindex: {enabled: 1}", false},
		{"version: 1\nstarlark: {repo: app, memory: 64MiB, max_wall: 5s}", true},
		{"version: 1\nstarlark: {memory: true}", false},
		{"version: 1\nruntime: {runtimes: [starlark]}", true},
		{"version: 1\nruntime: {runtime_env: {starlark: {A: b}}}", false},
		{"version: 1\ntelemetry: {traces: otlp, endpoint: \"https://otel.example.org:4318/in\", service: x}", true},
		{"version: 1\ntelemetry: {traces: off}", true},
	} {
		_, err := parseOne("f", []byte(tt.file), lookup)
		refused := validate(tt.file)
		if (err == nil) != tt.want || (refused == nil) != tt.want {
			t.Errorf("%s: parser %v, schema %v, want %t", tt.file, err, refused, tt.want)
		}
	}
}

// TestExample: what the example has commented out is valid, and has the defaults.
func TestExample(t *testing.T) {
	live := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(Example, "$1")
	c, err := parseOne("example.yaml", []byte(live), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if _, validate := readSchema(t); validate(live) != nil {
		t.Error("schema:", validate(live))
	}
	// These have no default, and show an example.
	if len(c.Repos) != 1 || len(c.Toolchains) != 1 || len(c.EtcFiles) != 1 || len(c.Profiles) != 1 || len(c.Principals) != 1 || len(c.Secrets) != 1 {
		t.Errorf("lists: %+v", c)
	}
	d := Default()
	c.Repos, c.Toolchains, c.EtcFiles, c.Profiles, c.Principals, c.OwnDirectories = nil, nil, nil, nil, nil, nil
	c.Ceilings, c.Runtime.Executables, c.Runtime.Rules, c.Runtime.Defaults = d.Ceilings, nil, "", d.Runtime.Defaults
	c.Runtime.Env, c.HTTP.AllowedHosts, c.HTTP.AllowedOrigins, c.HTTP.Page = nil, nil, nil, ""
	c.ExecServer.AllowedHosts, c.ExecServer.Peers, c.ExecServer.FullAccess = nil, nil, ""
	c.Sandbox.Workspace, c.Network, c.Secrets, c.Runtime.Network = nil, d.Network, nil, ""
	c.Sandbox.Repo, c.Sandbox.Image, c.Sandbox.Disk, c.Ctx.Repo, c.Starlark.Repo = "", "", 0, "", ""
	c.Telemetry, c.UserMemory = d.Telemetry, d.UserMemory
	if !reflect.DeepEqual(c, d) {
		t.Errorf("got %+v, want %+v", c, d)
	}
}
