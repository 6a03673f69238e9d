package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestSchemaKeys holds that the schema has the keys of the tables, in each mapping.
func TestSchemaKeys(t *testing.T) {
	s := readSchema(t)
	c := Default()
	for _, tt := range []struct {
		name   string
		schema *schema
		keys   []key
	}{
		{"file", s, append([]key{{name: "version"}}, c.keys()...)},
		{"uids", s.Properties["uids"], c.UIDs.keys()},
		{"repos", s.Properties["repos"].Items, new(Repo).keys()},
		{"profiles", s.Properties["profiles"].Additional.schema, new(Profile).keys()},
		{"audit", s.Properties["audit"], c.Audit.keys()},
		{"runtime", s.Properties["runtime"], c.Runtime.keys()},
		{"output", s.Properties["output"], c.Output.keys()},
		{"artifacts", s.Properties["artifacts"], c.Artifacts.keys()},
		{"principals", s.Properties["principals"].Items, new(Principal).keys()},
		{"http", s.Properties["http"], c.HTTP.keys()},
		{"exec_server", s.Properties["exec_server"], c.ExecServer.keys()},
		{"sandbox", s.Properties["sandbox"], c.Sandbox.keys()},
		{"ctx", s.Properties["ctx"], c.Ctx.keys()},
		{"index", s.Properties["index"], c.Index.keys()},
		{"starlark", s.Properties["starlark"], c.Starlark.keys()},
		{"telemetry", s.Properties["telemetry"], c.Telemetry.keys()},
		{"env", s.Defs["env"], envKeys(new([]string))},
		{"limits", s.Defs["limits"], limitKeys(&c.Defaults)},
	} {
		var want, got []string
		for _, k := range tt.keys {
			want = append(want, k.name)
		}
		for name := range tt.schema.Properties {
			got = append(got, name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the parser %q", tt.name, got, want)
		}
		if tt.schema.Additional == nil || tt.schema.Additional.schema != nil {
			t.Errorf("%s: the schema lets other keys pass", tt.name)
		}
	}
}

// TestSchemaWords holds that the schema has the words of package job.
func TestSchemaWords(t *testing.T) {
	s := readSchema(t)
	for name, want := range map[string][]string{"runtime": job.Runtimes(), "any_runtime": job.AllRuntimes()} {
		if got := s.Defs[name].Enum; !slices.Equal(got, want) {
			t.Errorf("runtimes %q, want %q", got, want)
		}
	}
	for _, word := range s.Defs["workspace"].Enum {
		if _, err := job.ParseWorkspace(word); err != nil {
			t.Error(err)
		}
	}
	for _, word := range s.Properties["repos"].Items.Properties["protect"].Enum {
		if _, err := job.ParseProtection(word); err != nil {
			t.Error(err)
		}
	}
	if got := s.Properties["profiles"].Additional.schema.Properties["syscalls"].Enum; !slices.Equal(got, builtin()) {
		t.Errorf("profiles of system calls %q, want %q", got, builtin())
	}
}

// TestSchemaDefaults holds that a file of all defaults of the schema changes nothing.
func TestSchemaDefaults(t *testing.T) {
	s := readSchema(t)
	file := map[string]any{"version": 1}
	for name, p := range s.Properties {
		if p.Default != nil {
			file[name] = p.Default
		}
		section := map[string]any{}
		for name, p := range p.Properties {
			switch {
			case p.Default != nil:
				section[name] = p.Default
			case p.Ref != "" && s.Defs[strings.TrimPrefix(p.Ref, "#/$defs/")].Default != nil:
				section[name] = s.Defs[strings.TrimPrefix(p.Ref, "#/$defs/")].Default
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

// TestSchemaLimits holds that the schema bounds and lifts what job.Fields does.
func TestSchemaLimits(t *testing.T) {
	s := readSchema(t)
	var l job.Limits
	for _, f := range l.Fields() {
		formName, ok := limitForms[f.Name]
		if !ok {
			t.Errorf("%s has no form", f.Name)
			continue
		}
		p := s.Defs["limits"].Properties[limitKey(f)]
		if got := p.wrong(s, unlimited) == ""; got != f.Liftable {
			t.Errorf("%s: unlimited is %t for the schema", f.Name, got)
		}
		if formName != "count" {
			continue
		}
		for v, want := range map[int64]bool{f.Min: true, f.Max: true, f.Min - 1: false, f.Max + 1: false} {
			if got := p.wrong(s, int(v)) == ""; got != want {
				t.Errorf("%s: %d is %t for the schema", f.Name, v, got)
			}
		}
	}
}

// decoded is content as a schema sees it.
func decoded(t *testing.T, content string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(content), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSchemaAgrees: what the parser takes the schema takes; what the schema can know of, it refuses like the parser.
func TestSchemaAgrees(t *testing.T) {
	s := readSchema(t)
	for _, tt := range []struct {
		file string
		want bool
	}{
		{full, true},
		{"version: 1", true},
		{Example, true},
		{"version: 2", false},
		{"max_jobs: 1", false},
		{"version: 1\nmax_job: 1", false},
		{"version: 1\nmax_jobs: 0", false},
		{"version: 1\ndefaults: {memory: 1.5g}", true},
		{"version: 1\ndefaults: {memory: 512 MB}", true},
		{"version: 1\ndefaults: {memory: 512XB}", false},
		{"version: 1\ndefaults: {timeout: 1h30m}", true},
		{"version: 1\ndefaults: {timeout: 1.5}", true},
		{"version: 1\ndefaults: {timeout: 5 minutes}", false},
		{"version: 1\ndefaults: {cpus: 0.5}", true},
		{"version: 1\ndefaults: {cpus: 0}", false},
		{"version: 1\ndefaults: {pids: '5'}", false},
		{"version: 1\nrepos: [{path: /x, users: []}]", false},
		{"version: 1\nrepos: [{users: [1]}]", false},
		{"version: 1\nrepos: [{path: x}]", false},
		{"version: 1\nown_directories: 1", false},
		{"version: 1\nuids: {base: 5}", false},
		{"version: 1\nrepos: [{path: /x, id: ''}]", false},
		{"version: 1\nrepos: [{path: /x, id: " + strings.Repeat("ä", 129) + "}]", false},
		{"version: 1\nrepos: [{path: /x, id: " + strings.Repeat("ä", 128) + "}]", true},
		{"version: 1\nrepos: [{path: /x, workspace: overlay}]", true},
		{"version: 1\nrepos: [{path: /x, runtimes: []}]", false},
		{"version: 1\nrepos: [{path: /x, runtimes: [basic]}]", false},
		{"version: 1\nrepos: [{path: /x, env: {allow: []}}]", true},
		{"version: 1\nrepos: [{path: /x, env: {allow: [1x]}}]", false},
		{"version: 1\nrepos: [{path: /x, env: [X]}]", false},
		{"version: 1\nprofiles: {a/b: {}}", false},
		{"version: 1\nprofiles: {a: {syscalls: loose}}", false},
		{"version: 1\nprofiles: {a: {sysclls: strict}}", false},
		{"version: 1\naudit: {fsync: never}", false},
		{"version: 1\naudit: {keep: unlimited}", true},
		{"version: 1\naudit: {keep: 0}", false},
		{"version: 1\nruntime: {enabled: 1}", false},
		{"version: 1\nruntime: {executables: [bin/sh]}", false},
		{"version: 1\nruntime: {runtime_env: {python: {A: 1, B: x, C: 1.5}}}", true},
		{"version: 1\nruntime: {runtime_env: {pithon: {A: 1}}}", false},
		{"version: 1\nruntime: {runtime_env: {python: {A-B: 1}}}", false},
		{"version: 1\nruntime: {runtime_env: {python: {A: true}}}", false},
		{"version: 1\nruntime: {queue_wait: 0}", true},
		{"version: 1\nruntime: {queue_wait: 0s}", true},
		{"version: 1\nruntime: {queue_wait: '0'}", true},
		{"version: 1\nruntime: {queue_wait: later}", false},
		{"version: 1\noutput: {keep: lots}", false},
		{"version: 1\noutput: {redact: 'true'}", false},
		{"version: 1\nartifacts: {max_count: 0}", false},
		{"version: 1\nprincipals: [{name: a}]", false},
		{"version: 1\nprincipals: [{name: a, token_sha256: abc}]", false},
		{"version: 1\nprincipals: [{name: a b, token_sha256: " + hash1 + "}]", false},
		{"version: 1\nprincipals: [{name: a, token_sha256: " + hash1 + ", tools: [sdl.runtime.execute]}]", false},
		{"version: 1\nhttp: {listen: localhost}", false},
		{"version: 1\nhttp: {allowed_hosts: ['*.example.org']}", false},
		{"version: 1\nhttp: {allowed_origins: [example.org]}", false},
		{"version: 1\nhttp: {allowed_origins: ['https://example.org/']}", false},
		{"version: 1\nexec_server: {listen: []}", false},
		{"version: 1\nexec_server: {listen: stdio}", false},
		{"version: 1\nexec_server: {listen: ['unix://run/x']}", false},
		{"version: 1\nexec_server: {listen: ['ws://localhost']}", false},
		{"version: 1\nexec_server: {listen: ['wss://localhost:1']}", false},
		{"version: 1\nexec_server: {listen: ['stdio://', 'ws://localhost:0']}", true},
		{"version: 1\nexec_server: {peers: []}", false},
		{"version: 1\nexec_server: {full_access: ''}", false},
		{"version: 1\nsandbox: {image: Debian}", false},
		{"version: 1\nsandbox: {image: debian-12, max_sessions: 128}", true},
		{"version: 1\nsandbox: {max_sessions: 129}", false},
		{"version: 1\nsandbox: {max_sessions: 0}", false},
		{"version: 1\nctx: {max_background: 1024}", true},
		{"version: 1\nctx: {max_background: 0}", false},
		{"version: 1\nindex: {enabled: 1}", false},
		{"version: 1\nstarlark: {repo: app, memory: 64MiB, max_wall: 5s}", true},
		{"version: 1\nstarlark: {memory: true}", false},
		{"version: 1\nruntime: {runtimes: [starlark]}", true},
		{"version: 1\nruntime: {runtime_env: {starlark: {A: b}}}", false},
		{"version: 1\ntelemetry: {traces: otlp, endpoint: \"https://otel.example.org:4318/in\", service: x}", true},
		{"version: 1\ntelemetry: {traces: off}", true},
		{"version: 1\ntelemetry: {traces: stdout}", false},
		{"version: 1\ntelemetry: {endpoint: \"localhost:4318\"}", false},
		{"version: 1\ntelemetry: {endpoint: \"http://a:b@localhost:4318\"}", false},
		{"version: 1\ntelemetry: {headers_file: headers}", false},
	} {
		_, err := parseOne("f", []byte(tt.file), lookup)
		why := s.wrong(s, decoded(t, tt.file))
		if (err == nil) != tt.want || (why == "") != tt.want {
			t.Errorf("%s: parser %v, schema %q, want %t", tt.file, err, why, tt.want)
		}
	}
}

// TestExample holds that what the example shows as commented out can be taken as it is, and says what holds without it.
func TestExample(t *testing.T) {
	live := regexp.MustCompile(`(?m)^#(\S|  )`).ReplaceAllString(Example, "$1")
	c, err := parseOne("example.yaml", []byte(live), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if why := readSchema(t).wrong(readSchema(t), decoded(t, live)); why != "" {
		t.Error("schema:", why)
	}
	// These have no value that holds without them, and show another.
	if len(c.Repos) != 2 || len(c.Toolchains) != 1 || len(c.Profiles) != 1 || len(c.Principals) != 1 {
		t.Errorf("lists: %+v", c)
	}
	d := Default()
	c.Repos, c.Toolchains, c.Profiles, c.Principals, c.OwnDirectories = nil, nil, nil, nil, nil
	c.Ceilings, c.Runtime.Executables, c.Runtime.Rules, c.Runtime.Defaults = d.Ceilings, nil, "", d.Runtime.Defaults
	c.Runtime.Env, c.HTTP.AllowedHosts, c.HTTP.AllowedOrigins = nil, nil, nil
	c.ExecServer.AllowedHosts, c.ExecServer.Peers, c.ExecServer.FullAccess = nil, nil, ""
	c.Sandbox.Workspace = nil
	c.Sandbox.Repo, c.Sandbox.Image, c.Sandbox.Disk, c.Ctx.Repo, c.Starlark.Repo = "", "", 0, "", ""
	c.Telemetry = d.Telemetry
	if !reflect.DeepEqual(c, d) {
		t.Errorf("got %+v, want %+v", c, d)
	}
	for _, keys := range [][]key{
		c.keys(), limitKeys(&c.Defaults), new(Repo).keys(), new(Profile).keys(), c.Audit.keys(), c.Runtime.keys(),
		c.Output.keys(), c.Artifacts.keys(), new(Principal).keys(), c.HTTP.keys(), c.ExecServer.keys(), c.Sandbox.keys(),
		c.Ctx.keys(), c.Index.keys(), c.Starlark.keys(), c.Telemetry.keys(),
	} {
		for _, k := range keys {
			if !strings.Contains(live, k.name+":") {
				t.Errorf("no %s in the example", k.name)
			}
		}
	}
}

// TestReference holds that the reference has every key.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	for section, keys := range map[string][]key{
		"":         slices.Concat(c.keys(), limitKeys(&c.Defaults), new(Repo).keys(), new(Profile).keys(), c.Audit.keys(), new(Principal).keys()),
		"runtime.": c.Runtime.keys(), "output.": c.Output.keys(), "artifacts.": c.Artifacts.keys(), "http.": c.HTTP.keys(),
		"exec_server.": c.ExecServer.keys(), "sandbox.": c.Sandbox.keys(), "ctx.": c.Ctx.keys(), "index.": c.Index.keys(),
		"starlark.": c.Starlark.keys(), "telemetry.": c.Telemetry.keys(),
	} {
		for _, k := range keys {
			if !slices.ContainsFunc([]string{"`" + section + k.name + "`", k.name + ":"}, func(s string) bool { return strings.Contains(string(page), s) }) &&
				!sectioned(k.name) {
				t.Errorf("no %s%s in the reference", section, k.name)
			}
		}
	}
}

// sectioned are keys that the reference has as the first word of their own keys.
func sectioned(name string) bool {
	return slices.Contains([]string{"runtime", "output", "artifacts", "http", "exec_server", "sandbox", "ctx", "index", "starlark", "telemetry"}, name)
}
