package commands

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"corral/front/cli"
	"corral/internal/text"
	"corral/job"
	"corral/policy"
)

// writeExplanation writes a decision as text: its steps, and what would be run. It does not contain values of
// variables.
func writeExplanation(w io.Writer, e policy.Explanation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range e.Steps {
		lines := []string{s.Found}
		if len(s.Against) > 0 {
			lines = s.Against
		}
		for i, line := range lines {
			rule, outcome := s.Rule, string(s.Outcome)
			if i > 0 {
				rule, outcome = "", ""
			}
			writeRow(t, rule, outcome, text.Escape(line))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t)
	d := e.Decision
	switch {
	case !d.Allowed():
		writeRow(t, "decision", "denied by "+d.Rule)
	case d.Missing != "":
		writeRow(t, "decision", "allowed, but no program can run it")
	default:
		writeRow(t, "decision", "allowed")
		writeSpec(t, d.Spec)
	}
	writeRow(t, "hash", d.Hash)
	return t.Flush()
}

// writeRow writes cells without the trailing spaces of empty ones. A tabwriter returns errors from Flush.
func writeRow(w io.Writer, cells ...string) {
	_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func writeSpec(w io.Writer, s job.Spec) {
	var argv []string
	for _, a := range s.Args {
		argv = append(argv, shellWord(a))
	}
	writeRow(w, "argv", strings.Join(argv, " "))
	for _, f := range s.Files {
		writeRow(w, "file", fmt.Sprintf("%s, %d bytes", f.Path, len(f.Content)))
	}
	var limits []string
	for _, f := range s.Limits.Fields() {
		if *f.Value != job.Unlimited {
			limits = append(limits, f.Name+" "+f.Format(*f.Value))
		}
	}
	writeRow(w, "limits", strings.Join(limits, ", "))
	writeRow(w, "workspace", s.Workspace.String())
	writeRow(w, "profile", s.Profile)
	if s.Network != "" {
		writeRow(w, "network", s.Network)
	}
}

// shellWord quotes a text that a shell would not read as one word.
func shellWord(s string) string {
	special := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("'\"\\$`&|;<>()*?[]#~!{}", r) }
	if s == "" || strings.ContainsFunc(s, special) {
		return strconv.Quote(s)
	}
	return s
}

type explanationJSON struct {
	Allowed   bool              `json:"allowed"`
	Rule      string            `json:"rule,omitempty"`
	Reasons   []string          `json:"reasons,omitempty"`
	Missing   string            `json:"missing,omitempty"`
	Hash      string            `json:"hash"`
	Steps     []stepJSON        `json:"steps"`
	Argv      []string          `json:"argv,omitempty"`
	Files     []fileJSON        `json:"files,omitempty"`
	Env       []string          `json:"env"`    // names
	Limits    map[string]*int64 `json:"limits"` // null is unlimited
	Repo      string            `json:"repo,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	Profile   string            `json:"profile,omitempty"`
	Network   string            `json:"network,omitempty"`
}

type stepJSON struct {
	Rule    string   `json:"rule"`
	Outcome string   `json:"outcome"`
	Found   string   `json:"found,omitempty"`
	Against []string `json:"against,omitempty"`
}

type fileJSON struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
}

func writeExplanationJSON(w io.Writer, e policy.Explanation) error {
	d := e.Decision
	out := explanationJSON{
		Allowed: d.Allowed(), Rule: d.Rule, Reasons: d.Reasons, Missing: d.Missing, Hash: d.Hash, Argv: d.Spec.Args,
		Env: append([]string{}, e.Env...), Limits: limitsJSON(e.Limits), Repo: d.Spec.Repo, Cwd: d.Spec.Dir, Profile: d.Spec.Profile,
		Network: d.Spec.Network,
	}
	if d.Spec.Args != nil {
		out.Workspace = d.Spec.Workspace.String()
	}
	for _, s := range e.Steps {
		out.Steps = append(out.Steps, stepJSON{s.Rule, string(s.Outcome), s.Found, s.Against})
	}
	for _, f := range d.Spec.Files {
		out.Files = append(out.Files, fileJSON{f.Path, len(f.Content)})
	}
	return cli.WriteJSON(w, out)
}

// limitsJSON returns limits by names that contain the unit; a nil value is unlimited. The map is empty if the decision
// was made before limits were known.
func limitsJSON(l job.Limits) map[string]*int64 {
	out := map[string]*int64{}
	for _, f := range l.Fields() {
		name, value := f.Key(), *f.Value
		if value == 0 {
			continue
		}
		switch f.Unit {
		case job.Bytes:
			name += "_bytes"
		case job.CPUs:
			name = "milli_" + name
		case job.Time:
			name += "_ms"
			if value != job.Unlimited {
				value = time.Duration(value).Milliseconds()
			}
		}
		out[name] = &value
		if value == job.Unlimited {
			out[name] = nil
		}
	}
	return out
}
