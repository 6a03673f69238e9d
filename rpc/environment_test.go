package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/workspace/edit"
)

// environmentServer returns a server of the environment protocol.
func (w *world) environmentServer() *Server {
	s := w.server()
	s.Engine = &job.Engine{Policy: w, Runner: w, Auditor: w, Sessions: leases{}}
	s.Environment = &Environment{Shell: "/bin/bash"}
	for n := range s.Repos[:1] {
		s.Repos[n].Allows = func(host string) bool { return host != "c.example" }
	}
	return s
}

// leases lends the same session for each job.
type leases struct{}

func (leases) Acquire(context.Context, *job.Request, job.Spec) (job.Lease, error) {
	return job.Lease{ID: "session", Return: func(bool) {}}, nil
}

// attach connects a peer and opens a session, or resumes one. It returns the session's id.
func attach(t *testing.T, s *Server, who Caller, retain bool, resume string) (p *peer, session string) {
	t.Helper()
	keep := Retention
	if !retain {
		keep = 0
	}
	p = &peer{t: t, conn: newPipe(), ended: make(chan struct{}), over: make(chan struct{}), news: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = s.ServeEnvironment(keep)(t.Context(), p.conn, who)
	}()
	t.Cleanup(p.hangUp)
	go p.read()
	param, _ := json.Marshal(resume)
	if resume == "" {
		param = []byte("null")
	}
	m := p.answer(p.ask("initialize", fmt.Sprintf(`{"clientName":"codex-environment","resumeSessionId":%s}`, param)))
	var r struct {
		ID   string `json:"sessionId"`
		Info struct {
			Shell map[string]string `json:"shell"`
		} `json:"environmentInfo"`
	}
	if m.Error == nil && (json.Unmarshal(m.Result, &r) != nil || r.ID == "" || r.Info.Shell["path"] != "/bin/bash") {
		t.Errorf("initialize: %s", m.raw)
	}
	return p, r.ID
}

func entered(t *testing.T, s *Server) *peer {
	t.Helper()
	p, _ := attach(t, s, Caller{Principal: "user:ada"}, false, "")
	return p
}

// starting returns the parameters of process/start; more is appended to them.
func starting(id, more string, argv ...string) string {
	words, _ := json.Marshal(argv)
	return fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"file:///srv/app","env":{"A":"b"},"tty":false,"metadata":{"threadId":"T","toolCallId":"C"}%s}`,
		id, words, more)
}

// An event is a notification about a process.
type event struct {
	Method string `json:"method"`
	Params struct {
		ID     string `json:"processId"`
		Seq    int64  `json:"seq"`
		Stream string `json:"stream"`
		Chunk  []byte `json:"chunk"`
		Exit   int    `json:"exitCode"`
		Denied bool   `json:"sandboxDenied"`
	} `json:"params"`
}

func (p *peer) events(id string) (list []event) {
	texts, _ := p.all()
	for _, m := range texts {
		var e event
		if json.Unmarshal([]byte(m.raw), &e) == nil && e.Params.ID == id && m.ID == nil {
			list = append(list, e)
		}
	}
	return list
}

// closed waits for the end of a process, and returns its events.
func (p *peer) closed(id string) []event {
	p.t.Helper()
	p.until(id+" closed", func(m arrival) bool { return m.Method == "process/closed" && m.Params.ProcessID == id })
	return p.events(id)
}

// TestEnvironmentEvents: the events of a process are numbered from 1 without a gap, its exit comes once, and its end last.
func TestEnvironmentEvents(t *testing.T) {
	w := &world{run: shell}
	p := entered(t, w.environmentServer())
	if m := p.answer(p.ask("process/start", starting("p", "", "both"))); !strings.Contains(m.raw, `"processId":"p"`) || !strings.Contains(m.raw, `"sandboxType":"linuxSeccomp"`) {
		t.Errorf("%s", m.raw)
	}
	out := map[string]string{}
	list := p.closed("p")
	for n, e := range list {
		if e.Params.Seq != int64(n+1) {
			t.Errorf("event %d is numbered %d", n+1, e.Params.Seq)
		}
		out[e.Params.Stream] += string(e.Params.Chunk)
	}
	if n := len(list); n != 4 || list[n-2].Method != "process/exited" || list[n-1].Method != "process/closed" || out["stdout"] != "out" || out["stderr"] != "err" {
		t.Errorf("%+v", list)
	}
	if m := p.answer(p.ask("process/start", starting("p", "", "true"))); m.Error == nil || m.Error.Code != -32600 {
		t.Errorf("the id of an ended process: %s", m.raw)
	}
	if m := p.answer(p.ask("process/read", `{"processId":"p","afterSeq":1,"maxBytes":null,"waitMs":null}`)); !strings.Contains(m.raw, `"nextSeq":5,"exited":true,"exitCode":0,"closed":true`) ||
		strings.Contains(m.raw, `"seq":1`) || !strings.Contains(m.raw, `"seq":2`) {
		t.Errorf("%s", m.raw)
	}
	if m := p.answer(p.ask("process/terminate", `{"processId":"p"}`)); string(m.Result) != `{"running":false}` {
		t.Errorf("%s", m.raw)
	}
}

// TestNarrowing: the most specific entry of a sandbox wins, and deny over all.
func TestNarrowing(t *testing.T) {
	const root = "/srv/app"
	for name, tt := range map[string]struct {
		rules []rule
		want  job.Request
		why   string
	}{
		"all":                   {rules: []rule{{path: "/", access: "write"}}},
		"read-only":             {rules: []rule{{path: "/", access: "read"}}, want: job.Request{ReadOnly: true}},
		"workspace":             {rules: []rule{{path: "/", access: "read"}, {path: root, access: "write"}}},
		"workspace, git":        {rules: []rule{{path: root + "/.git", access: "read"}, {path: root, access: "write"}}, want: job.Request{Protect: job.ProtectAll, Bounds: "r.git\x00"}},
		"a part":                {rules: []rule{{path: "/", access: "read"}, {path: root + "/x", access: "write"}}, want: job.Request{Bounds: "ox\x00r.\x00"}},
		"a part, with git":      {rules: []rule{{path: root + "/x/.git", access: "read"}, {path: root + "/x", access: "write"}, {path: root, access: "read"}}, want: job.Request{Bounds: "ox\x00r.\x00px\x00rx/.git\x00"}},
		"hidden":                {rules: []rule{{path: root, access: "write"}, {path: root + "/s", access: "write"}, {path: root + "/s", access: "deny"}}, want: job.Request{Bounds: "hs\x00"}},
		"hidden, deep":          {rules: []rule{{path: root, access: "write"}, {path: root + "/a/b/c", access: "deny"}, {path: root + "/a/d", access: "read"}}, want: job.Request{Bounds: "pa\x00pa/b\x00ra/d\x00ha/b/c\x00"}},
		"hidden beside a part":  {rules: []rule{{path: "/", access: "read"}, {path: root + "/x", access: "write"}, {path: root + "/y/z", access: "deny"}}, want: job.Request{Bounds: "ox\x00r.\x00hy/z\x00"}},
		"hidden, read-only":     {rules: []rule{{path: "/", access: "read"}, {path: root + "/s", access: "deny"}}, want: job.Request{ReadOnly: true, Bounds: "hs\x00"}},
		"beside the repository": {rules: []rule{{path: "/", access: "read"}, {path: "/srv/app2", access: "write"}}, want: job.Request{ReadOnly: true}},
		"part of a read-only":   {rules: []rule{{path: "/", access: "read"}, {path: root + "/a", access: "read"}, {path: root + "/a/b", access: "write"}}, want: job.Request{Bounds: "oa/b\x00r.\x00"}},
		"no entry":              {why: "no access"},
		"nothing":               {rules: []rule{{path: "/tmp", access: "write"}}, why: "no access"},
		"deny over all":         {rules: []rule{{path: "/srv", access: "deny"}, {path: root, access: "write"}}, why: "no access"},
		"a pattern":             {rules: []rule{{path: "/", access: "write"}, {path: root, glob: "**/*.env", access: "deny"}}, why: "pattern"},
		"a pattern to write":    {rules: []rule{{path: "/", access: "read"}, {path: root, glob: "*.env", access: "write"}}, want: job.Request{ReadOnly: true}},
		"too long":              {rules: []rule{{path: "/", access: "read"}, {path: root + "/" + strings.Repeat("x", job.MaxBounds), access: "deny"}}, why: "too many"},
	} {
		n, got := narrowing{given: true, bounded: true, rules: tt.rules}, job.Request{}
		v := n.of(root)
		why := v.apply(&got)
		if !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") || why == "" && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %q, %+v", name, why, got)
		}
	}
}

// TestExpression: a pattern is about the paths that a shell would say, what is below them, and in doubt more.
func TestExpression(t *testing.T) {
	for pattern, want := range map[string]map[string]bool{
		"**/*.env":    {"x.env": true, "a/b/x.env": true, ".env": true, "x.env/f": true, "x.envy": false, "x.env.d/f": false, "env": false},
		"a.b/**":      {"a.b/c/d": true, "a.b": false, "axb/c": false},
		"keys/*":      {"keys/k": true, "keys/d/k": true, "keys": false, "mykeys/k": false},
		"s?cret":      {"secret": true, "s/cret": false},
		"[kK]ey":      {"Key": true, "a/b": true},
		"ü(.txt":      {"ü(.txt": true, "u(.txt": false},
		"**/private/": {"private/": true},
	} {
		r := rule{path: "/srv/a+p", glob: pattern}
		e := regexp.MustCompile(r.expression())
		for path, match := range want {
			if e.MatchString("/srv/a+p/"+path) != match || e.MatchString("/srv/aap/"+path) {
				t.Errorf("%s: %s, %v", pattern, path, e)
			}
		}
	}
}

// TestEnvironmentRefusals: each error has the code that Codex acts on.
func TestEnvironmentRefusals(t *testing.T) {
	w := &world{run: shell}
	p := entered(t, w.environmentServer())
	managed := func(entries, more string) string {
		return `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` + entries + `]},"network":"restricted"},"workspaceRoots":["file:///srv/app"]}` + more
	}
	special := func(kind, access string) string {
		return fmt.Sprintf(`{"path":{"type":"special","value":{"kind":%q}},"access":%q}`, kind, access)
	}
	for name, tt := range map[string]struct {
		method, params string
		code           int
		want           string
	}{
		"unknown method":      {"no/such", `{}`, -32601, "unknown method"},
		"again":               {"initialize", `{"clientName":"x"}`, -32600, "Already"},
		"another host":        {"process/start", strings.Replace(starting("a", "", "true"), "file:///srv", "file://other/srv", 1), -32602, "of this environment"},
		"unknown kind":        {"process/start", starting("a", managed(special("moon", "read"), ""), "true"), -32602, "unknown `kind`"},
		"unknown access":      {"process/start", starting("a", managed(special("root", "all"), ""), "true"), -32602, "unknown `access`"},
		"no access":           {"process/start", starting("a", managed(special("slash_tmp", "write"), ""), "true"), -32603, "no access"},
		"glob":                {"process/start", starting("a", managed(special("root", "write")+`,{"path":{"type":"glob_pattern","pattern":"codex-project-roots://**/*.env"},"access":"deny"}`, ""), "true"), -32603, "pattern"},
		"relative glob":       {"process/start", starting("a", managed(special("root", "write")+`,{"path":{"type":"glob_pattern","pattern":"*.env"},"access":"deny"}`, ""), "true"), -32602, "unknown pattern"},
		"no word of network":  {"process/start", strings.Replace(starting("a", managed(special("root", "read"), ""), "true"), `"network":"restricted"`, `"network":""`, 1), -32602, "permissions.network"},
		"rules without proxy": {"process/start", starting("a", `,"enforceManagedNetwork":true`, "true"), -32603, "without networkProxy"},
		"limited":             {"process/start", starting("a", `,"enforceManagedNetwork":true,"networkProxy":{"proxy":{"mode":"limited"}}`, "true"), -32603, "limited"},
		"no process":          {"process/read", `{"processId":"none"}`, -32600, "unknown process"},
		"another signal":      {"process/signal", `{"processId":"none","signal":"kill"}`, -32602, "unknown signal"},
		"no path":             {"fs/readFile", `{"sandbox":null}`, -32602, "missing field"},
		"relative":            {"fs/readFile", `{"path":"file:x","sandbox":null}`, -32602, "absolute"},
	} {
		m := p.answer(p.ask(tt.method, tt.params))
		if m.Error == nil || m.Error.Code != tt.code || !strings.Contains(m.raw, tt.want) {
			t.Errorf("%s: %s", name, m.raw)
		}
	}
	// A command may be refused before or after process/start was answered.
	for id, tt := range map[string]struct{ params, data, said string }{
		"outside": {strings.Replace(starting("outside", "", "true"), "/srv/app", "/srv", 1), "", "not in a served repository"},
		"missing": {starting("missing", "", "missing"), "spawnNotFound", "No such file"},
	} {
		if m := p.answer(p.ask("process/start", tt.params)); m.Error != nil {
			if m.Error.Code != -32603 || !strings.Contains(m.raw, tt.data) || !strings.Contains(m.raw, tt.said) {
				t.Errorf("%s: %s", id, m.raw)
			}
			continue
		}
		list := p.closed(id)
		if exit := list[len(list)-2].Params.Exit; exit != exitMissing && exit != exitNoExec || !strings.Contains(string(list[0].Params.Chunk), tt.said) {
			t.Errorf("%s: %+v", id, list)
		}
	}
	if m := p.answer(p.ask("process/write", `{"processId":"none","chunk":"YQ==","writeId":"1"}`)); string(m.Result) != `{"status":"unknownProcess"}` {
		t.Errorf("%s", m.raw)
	}
}

// TestEnvironmentNarrows: a sandbox takes away from what the operator allows, and none adds nothing.
func TestEnvironmentNarrows(t *testing.T) {
	const write = `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}`
	sandbox := func(entries, network string) string {
		return `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` + entries + `]},"network":"` + network + `"},"workspaceRoots":["file:///srv/app"]}`
	}
	rules := func(domains string) string {
		return `,"enforceManagedNetwork":true,"networkProxy":{"proxy":{"mode":"full","domains":` + domains + `}}`
	}
	w := &world{run: shell}
	p := entered(t, w.environmentServer())
	n := 0
	for name, tt := range map[string]struct {
		more     string
		readOnly bool
		protect  job.Protection
		network  string
	}{
		"nothing":        {"", false, job.ProtectNone, ""},
		"disabled":       {`,"sandbox":{"permissions":{"type":"disabled"}}`, false, job.ProtectNone, ""},
		"unrestricted":   {`,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}}`, false, job.ProtectNone, ""},
		"read":           {sandbox(`{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`, "restricted"), true, job.ProtectNone, "none"},
		"write":          {sandbox(write, "restricted"), false, job.ProtectAll, "none"},
		"network":        {sandbox(write, "enabled"), false, job.ProtectAll, ""},
		"domains":        {sandbox(write, "enabled") + rules(`{"b.example":"allow","**.a.example":"allow"}`), false, job.ProtectAll, "*.a.example a.example b.example"},
		"some domains":   {sandbox(write, "enabled") + rules(`{"b.example":"allow","c.example":"allow"}`), false, job.ProtectAll, "b.example"},
		"other domains":  {sandbox(write, "enabled") + rules(`{"c.example":"allow"}`), false, job.ProtectAll, "none"},
		"no domain":      {sandbox(write, "enabled") + rules(`{"b.example":"deny"}`), false, job.ProtectAll, "none"},
		"domains in off": {sandbox(write, "restricted") + rules(`{"b.example":"allow"}`), false, job.ProtectAll, "none"},
	} {
		n++
		id := fmt.Sprint("p", n)
		p.must("process/start", starting(id, tt.more, "true"))
		p.closed(id)
		w.mu.Lock()
		r := w.reqs[len(w.reqs)-1]
		w.mu.Unlock()
		if r.ReadOnly != tt.readOnly || r.Protect != tt.protect || r.Network != tt.network || !r.Share || *r.Env["A"] != "b" {
			t.Errorf("%s: %+v", name, r)
		}
		if !strings.Contains(r.Client, "thread=T; call=C; process="+id) {
			t.Errorf("%s: %q", name, r.Client)
		}
	}
	if m := p.answer(p.ask("process/start", starting("x", rules(`{"*.a.example":"allow","b.a.example":"deny"}`), "true"))); m.Error == nil || !strings.Contains(m.raw, "cannot enforce both") {
		t.Errorf("%s", m.raw)
	}
}

// TestEnvironmentInput: what is written with one id is written once, a signal interrupts, and terminate kills.
func TestEnvironmentInput(t *testing.T) {
	w := &world{run: shell}
	p := entered(t, w.environmentServer())
	p.must("process/start", starting("c", `,"pipeStdin":true`, "cat"))
	for range 2 {
		if m := p.answer(p.ask("process/write", `{"processId":"c","chunk":"YQo=","writeId":"1"}`)); string(m.Result) != `{"status":"accepted"}` {
			t.Errorf("%s", m.raw)
		}
	}
	p.must("process/write", `{"processId":"c","chunk":"Ygo=","writeId":"2"}`)
	p.until("output", func(arrival) bool {
		text := ""
		for _, e := range p.events("c") {
			text += string(e.Params.Chunk)
		}
		if len(text) > 4 {
			t.Fatalf("%q", text)
		}
		return text == "a\nb\n"
	})
	if m := p.answer(p.ask("process/terminate", `{"processId":"c"}`)); string(m.Result) != `{"running":true}` {
		t.Errorf("%s", m.raw)
	}
	if list := p.closed("c"); list[len(list)-2].Params.Exit != 137 || list[len(list)-2].Params.Denied {
		t.Errorf("%+v", list)
	}
	p.must("process/start", starting("n", "", "sleep"))
	if m := p.answer(p.ask("process/write", `{"processId":"n","chunk":"YQ==","writeId":"1"}`)); string(m.Result) != `{"status":"stdinClosed"}` {
		t.Errorf("%s", m.raw)
	}
}

// TestEnvironmentBounds: reads that wait, and sessions of a principal, are bounded.
func TestEnvironmentBounds(t *testing.T) {
	w := &world{run: shell}
	s := w.environmentServer()
	p := entered(t, s)
	p.must("process/start", starting("c", `,"pipeStdin":true`, "cat"))
	const wait = `{"processId":"c","afterSeq":0,"maxBytes":null,"waitMs":30000}`
	for range maxReads {
		p.ask("process/read", wait)
	}
	if m := p.answer(p.ask("process/read", wait)); m.Error != nil || !strings.Contains(m.raw, `"chunks":[]`) {
		t.Errorf("%s", m.raw)
	}
	for n := range maxSessions {
		s.Environment.mu.Lock()
		s.Environment.sessions[fmt.Sprint(n)] = &client{who: Caller{Principal: "user:many"}}
		s.Environment.mu.Unlock()
	}
	for name, ok := range map[string]bool{"user:many": false, "user:other": true} {
		if _, session := attach(t, s, Caller{Principal: name}, true, ""); (session != "") != ok {
			t.Errorf("%s: %q", name, session)
		}
	}
}

// TestEnvironmentDenials: what the jail refused is said on the command's standard error.
func TestEnvironmentDenials(t *testing.T) {
	w := &world{run: func(_ context.Context, std job.Stdio, argv []string) (job.Result, error) {
		say(std.Stderr, argv[1]+"\n")
		r := job.Result{Status: job.Failure, ExitCode: 1}
		switch argv[0] {
		case "network":
			r.Network = &job.NetworkUse{Denied: 1, Denials: []job.NetworkDenial{{Name: "example.org", Port: 443, Why: "no rule", Count: 1}}}
		case "memory":
			r.Limit = job.LimitMemory
		case "hook":
			r.Status, r.ExitCode, r.Sensitive = job.Success, 0, []string{".git/hooks/pre-commit"}
		}
		return r, nil
	}}
	p := entered(t, w.environmentServer())
	for n, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"network", ""}, "corral: network: example.org:443 denied: no rule\n"},
		{[]string{"memory", ""}, "corral: the command reached the limit memory\n"},
		{[]string{"write", "touch: cannot touch 'x': Read-only file system"}, "corral: the path is read-only here"},
		{[]string{"hook", ""}, "corral: sensitive path changed: .git/hooks/pre-commit\n"},
		{[]string{"other", "something is wrong"}, ""},
		{[]string{"beside", "touch: cannot touch '/srv/secret/x': No such file or directory"}, "corral: /srv/secret/x is outside of the repository"},
		{[]string{"inside", "cat: /srv/app/none: No such file or directory"}, ""},
		{[]string{"system", "cat: /etc/none: No such file or directory"}, ""},
	} {
		id := fmt.Sprint("p", n)
		p.must("process/start", starting(id, "", tt.argv...))
		text, denied := "", false
		for _, e := range p.closed(id) {
			text += string(e.Params.Chunk)
			denied = denied || e.Params.Denied
		}
		if denied != (tt.want != "" && tt.argv[0] != "hook") || !strings.Contains(text, tt.want) || tt.want == "" && strings.Contains(text, "corral:") {
			t.Errorf("%q: denied %v, %q", tt.argv, denied, text)
		}
	}
}

// filer plays corral-layer: it runs operations on files in a directory.
func filer(dir string) func(context.Context, job.Stdio, []string) (job.Result, error) {
	return func(_ context.Context, std job.Stdio, argv []string) (job.Result, error) {
		if argv[0] != edit.FilesName {
			say(std.Stdout, "ran\n")
			return job.Result{}, nil
		}
		back, _ := os.Getwd()
		defer func() { _ = os.Chdir(back) }()
		if err := os.Chdir(dir); err != nil {
			return job.Result{}, err
		}
		err := edit.RunFiles(nil, std.Stdin, std.Stdout)
		var failed *edit.FileError
		switch {
		case err == nil:
			return job.Result{}, nil
		case errors.As(err, &failed):
			say(std.Stderr, "corral-layer: "+err.Error())
			return job.Result{Status: job.Success, ExitCode: failed.ExitCode()}, nil
		}
		say(std.Stderr, "corral-layer: "+err.Error())
		return job.Result{Status: job.Failure, ExitCode: 1}, nil
	}
}

// TestEnvironmentFiles: operations on files are jobs, and a refused change is told to the model with the next command.
func TestEnvironmentFiles(t *testing.T) {
	dir := t.TempDir()
	w := &world{run: filer(dir)}
	s := w.environmentServer()
	s.Repos, s.Dir = []Repo{{ID: "app", Path: dir}}, dir
	p := entered(t, s)
	at := func(name, more string) string {
		return fmt.Sprintf(`{"path":%q,"sandbox":null%s}`, edit.URI(dir+"/"+name), more)
	}
	data := base64.StdEncoding.EncodeToString([]byte("hi\x00"))
	for _, tt := range []struct {
		method, params string
		code           int
		want           string
	}{
		{"fs/writeFile", at("d/a b%ü", `,"dataBase64":"`+data+`"`), codeMissing, ""},
		{"fs/createDirectory", at("d/e", `,"recursive":true`), 0, `"result":{}`},
		{"fs/createDirectory", at("d/e", `,"recursive":true`), 0, `"result":{}`},
		{"fs/createDirectory", at("d/e", `,"recursive":false`), -32600, ""},
		{"fs/writeFile", at("d/a b%ü", `,"dataBase64":"`+data+`"`), 0, `"result":{}`},
		{"fs/readFile", at("d/a b%ü", ""), 0, `"dataBase64":"` + data + `"`},
		{"fs/readFile", at("d", ""), -32600, "not a regular file"},
		{"fs/getMetadata", at("d/a b%ü", ""), 0, `"size":3`},
		{"fs/getMetadata", at("none", ""), codeMissing, ""},
		{"fs/canonicalize", at("d/../d", ""), 0, edit.URI(dir + "/d")},
		{"fs/readDirectory", at("d", ""), 0, `{"fileName":"e","isDirectory":true,"isFile":false}`},
		{"fs/walk", at("", `,"options":{"maxDepth":9}`), 0, `a%20b%25%C3%BC","kind":"file"`},
		{"fs/copy", fmt.Sprintf(`{"sourcePath":%q,"destinationPath":%q,"recursive":true}`, edit.URI(dir+"/d"), edit.URI(dir+"/f")), 0, `"result":{}`},
		{"fs/readFile", at("f/a b%ü", ""), 0, data},
		{"fs/remove", at("f", `,"recursive":false,"force":false`), -32600, ""},
		{"fs/remove", at("f", `,"recursive":true,"force":false`), 0, `"result":{}`},
		{"fs/remove", at("f", `,"recursive":true,"force":false`), codeMissing, ""},
		{"fs/remove", at("f", `,"recursive":true,"force":true`), 0, `"result":{}`},
		{"fs/writeFile", at(".git/config", `,"dataBase64":""`), -32603, "git directory"},
		{"fs/writeFile", `{"path":"file:///etc/corral-test","sandbox":null,"dataBase64":""}`, -32603, "out of the repository"},
	} {
		m := p.answer(p.ask(tt.method, tt.params))
		if tt.code == 0 != (m.Error == nil) || m.Error != nil && m.Error.Code != tt.code || !strings.Contains(m.raw, tt.want) {
			t.Errorf("%s %s: %s", tt.method, tt.params, m.raw)
		}
	}
	start := strings.Replace(starting("p", "", "true"), "file:///srv/app", edit.URI(dir), 1)
	p.must("process/start", start)
	text := ""
	for _, e := range p.closed("p") {
		text += string(e.Params.Chunk)
	}
	if strings.Count(text, "corral: fs/writeFile of ") != 2 || !strings.Contains(text, "git directory") {
		t.Errorf("%q", text)
	}
}

// TestEnvironmentResume: a session outlives its connection, and the client that comes back has lost nothing. Nobody else gets it.
func TestEnvironmentResume(t *testing.T) {
	step := make(chan string)
	w := &world{run: func(ctx context.Context, std job.Stdio, _ []string) (job.Result, error) {
		for {
			select {
			case word, more := <-step:
				if !more {
					return job.Result{}, nil
				}
				say(std.Stdout, word)
			case <-ctx.Done():
				return job.Result{}, nil
			}
		}
	}}
	s := w.environmentServer()
	ended := make(chan string, 1)
	s.Ended = func(_, session string) { ended <- session }
	ada := Caller{Principal: "token:ada"}
	p, id := attach(t, s, ada, true, "")
	p.must("process/start", starting("p", "", "any"))
	step <- "one "
	p.until("output", func(m arrival) bool { return m.Method == "process/output" })
	p.hangUp()
	step <- "two "
	if other, got := attach(t, s, Caller{Principal: "token:eve"}, true, id); got != "" {
		t.Error("another principal has resumed the session")
	} else {
		other.hangUp()
	}
	q, got := attach(t, s, ada, true, id)
	if got != id {
		t.Fatalf("session %s in place of %s", got, id)
	}
	step <- "three"
	close(step)
	list := q.closed("p")
	last := list[len(list)-1].Params.Seq
	m := q.answer(q.ask("process/read", `{"processId":"p","afterSeq":1,"maxBytes":null,"waitMs":0}`))
	var r readResult
	if err := json.Unmarshal(m.Result, &r); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, c := range r.Chunks {
		text += string(c.Chunk)
	}
	if text != "two three" || !r.Closed || r.Next != last+1 {
		t.Errorf("%q of %s", text, m.raw)
	}
	q.hangUp()
	s.Environment.EndSessions()
	sandboxtest.Eventually(t, sandboxtest.Slow(1e10), "the session ends", func() bool { return len(ended) == 1 })
	if held, _ := s.held.Held(); held != 0 {
		t.Errorf("%d bytes of the budget are held", held)
	}
	<-ended
	revoked, _ := attach(t, s, ada, true, "")
	revoked.conn.revoked.Store(true) // its token is not accepted any more
	revoked.hangUp()
	sandboxtest.Eventually(t, sandboxtest.Slow(1e10), "the session ends", func() bool { return len(ended) == 1 })
}

// TestEnvironmentHint: a Codex that was configured with corral exec-server is told what to configure.
func TestEnvironmentHint(t *testing.T) {
	p := dial(t, (&world{run: shell}).server())
	go p.read()
	if m := p.answer(p.ask("initialize", `{"clientName":"codex-environment","resumeSessionId":null}`)); m.Error == nil || !strings.Contains(m.raw, "corral codex-environment") {
		t.Errorf("%s", m.raw)
	}
}
