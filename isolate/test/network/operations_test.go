package network

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/test/supervise"
	"corral/job"
	"corral/policy/starlark"
	"corral/workspace/edit"
)

// networks are the kinds of rules that a repository can have, and the output of a program there: whether it has a resolver, and a
// placeholder.
var networks = []struct {
	name    string
	set     func(c *isolate.Config)
	program string
}{
	{"no rule", func(c *isolate.Config) { c.Network, c.Requests = nil, nil }, "\n"},
	{"host rule", func(c *isolate.Config) { c.Network = []byte(`{"allow":[{"host":"web.example.org"}]}`) }, "names\n\n"},
	{"rule about requests", func(c *isolate.Config) { c.Network, c.Requests = []byte(endedRules), new(admit.Requests) }, "names\n\n"},
	{"secret", func(c *isolate.Config) { c.Network, c.Requests = []byte(secretRules), requests(acme) }, "names\nplaceholder\n"},
}

// A where is a place in which operations are tried: a session, or none.
type where struct {
	name    string
	session *job.SessionSpec // nil: none
	repo    job.Workspace    // of the jobs
	ended   bool             // the session has ended, and its layer is kept
	refuses map[string]string
}

// wheres are the places, with the step that refuses each operation which is not possible there.
var wheres = []where{
	{"no session", nil, job.Direct, false, with(withoutLayer, "starlark", "workspace")},
	{"no repository", nil, job.NoRepo, false, with(withoutLayer, "edit", "workspace", "starlark", "")},
	{"direct", &job.SessionSpec{}, job.Direct, false, withoutLayer},
	{"shared", &job.SessionSpec{Share: true}, job.Direct, false, withoutLayer},
	{"overlay", &job.SessionSpec{Workspace: job.Overlay}, job.Overlay, false, inSession},
	{"ended", &job.SessionSpec{Workspace: job.Overlay, Share: true}, job.Overlay, true, inSession},
	{"rooted", &job.SessionSpec{Workspace: job.Overlay, Root: true}, job.Overlay, false, with(inSession, "edit", "session")},
}

var (
	inSession    = map[string]string{"starlark": "session", "unpack": "session"}
	withoutLayer = with(inSession, "list", "session", "apply", "session")
)

// with returns steps with others for some operations.
func with(steps map[string]string, others ...string) map[string]string {
	steps = maps.Clone(steps)
	for n := 0; n < len(others); n += 2 {
		steps[others[n]] = others[n+1]
	}
	return steps
}

// operations are what a client can request of a supervisor, as changes of a job that would run a program.
var operations = map[string]func(s *job.Spec){
	"program": func(s *job.Spec) {
		s.Args = []string{"sh", "-c", `grep -q ^nameserver /etc/resolv.conf 2>/dev/null && echo names; echo ${CORRAL_SECRET+placeholder}`}
	},
	"edit": func(s *job.Spec) { s.Tool, s.Args = job.ToolEdit, []string{edit.Name} },
	"list": func(s *job.Spec) {
		s.Tool, s.Args, s.Workspace = job.ToolChanges, []string{"changes", "list", s.Repo}, job.ReadOnly
	},
	"apply": func(s *job.Spec) {
		s.Tool, s.Args, s.Workspace = job.ToolChanges, []string{"changes", "apply", "-opened", "1", s.Repo}, job.Direct
	},
	"starlark": func(s *job.Spec) {
		const path = "/tmp/job/code.star"
		bounds := starlark.Bounds{Output: 1 << 10, Wall: 10 * time.Second, Memory: 128 << 20}
		s.Tool, s.Args, s.Limits.Memory = job.ToolStarlark, starlark.Arguments(bounds, path), bounds.Memory
		s.Files = []job.File{{Path: path, Content: `emit("x")`}}
	},
	"unpack": func(s *job.Spec) { s.Tool, s.Args = job.ToolUnpack, []string{"unpack", "/image"} },
}

// TestOperations: each operation runs, or is refused by the right step, wherever it is tried, whatever rules its repository has. None ends
// the supervisor, or makes another operation fail.
func TestOperations(t *testing.T) {
	var again isolate.Config
	f := supervise.New(t, func(c *isolate.Config) {
		again = *c
		c.Again = func() (isolate.Config, error) { return again, nil }
	})
	for _, n := range networks {
		n.set(&again)
		if _, err := f.S.Reload(); err != nil {
			t.Fatal(err)
		}
		for _, profile := range []string{"default", "strict"} {
			for _, w := range wheres {
				t.Run(fmt.Sprintf("%s, %s, %s", n.name, profile, w.name), func(t *testing.T) {
					w.try(t, f, profile, n.program)
				})
			}
		}
	}
}

// try tries all operations in one place.
func (w *where) try(t *testing.T, f *supervise.Front, profile, program string) {
	g := f.With(t, f.C, sandboxtest.NewRepo(t))
	sandboxtest.Put(t, g.Repo+"/file", "old\n", 0o644, sandboxtest.Owner)
	id := ""
	if w.session != nil {
		spec := *w.session
		spec.Profile = profile
		ss := g.Session(spec)
		id = ss.ID
		defer g.CloseSession(ss, false)
		if w.ended {
			g.Must(ss, "echo new >new")
			g.CloseSession(ss, true)
		}
	}
	for _, name := range []string{"edit", "list", "apply", "starlark", "unpack", "program"} { // a program opens a session's door
		spec := job.Spec{Repo: g.Repo, Session: id, Workspace: w.repo, Profile: profile, Env: fronttest.Environment}
		operations[name](&spec)
		old, changed := "old", "new"
		input := edit.Request{Path: "file", Old: &old, New: &changed}
		d, err := feed(g, spec, input.Encode())
		step := w.refuses[name]
		if name == "starlark" && profile == "default" && step == "" {
			step = "profile"
		}
		switch {
		case step != "":
			sandboxtest.RefusedAt(t, name, err, step, 0)
		case err != nil || d.Status != job.Success:
			t.Errorf("%s: %+v %v %q %q", name, d.Result, err, d.Out, d.Err)
		case name == "program" && d.Out != program:
			t.Errorf("a program found %q, want %q", d.Out, program)
		}
	}
}

// feed runs a job with input, if it starts.
func feed(f *supervise.Front, spec job.Spec, input string) (fronttest.Did, error) {
	l, err := f.Start(spec)
	if err != nil {
		return fronttest.Did{}, err
	}
	_, _ = l.In.WriteString(input) // not all of them read it
	return l.End()
}
