package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// Sandbox is about sandbox_exec and the sessions that clients have.
type Sandbox struct {
	Enabled bool   // sandbox.enabled: the tool is served, in repositories where the runtime shell may be used
	Repo    string // sandbox.repo: id of the repository that commands see; "" is the first that a client may use
	// Workspace is sandbox.workspace: what commands may do to the repository. Nil is overlay, see Config.SandboxWorkspace.
	Workspace  *job.Workspace
	Timeout    time.Duration // sandbox.timeout: of a command that names none
	MaxTimeout time.Duration // sandbox.max_timeout: the longest that can be asked for, in place of runtime.max_duration
	// OutputLimit is sandbox.output_limit: bytes of both streams together; of a command that writes more, nothing is shown.
	OutputLimit    int64
	PartialOutput  bool          // sandbox.partial_output: what was written before a timeout is shown
	SessionTimeout time.Duration // sandbox.session_timeout: a session over HTTP ends when it ran no command for so long
	Image          string        // sandbox.image: name of the root file system; "" is the host's system directories
	Disk           int64         // sandbox.disk: bytes that a session may add; 0 is the supervisor's default
	MaxSessions    int           // sandbox.max_sessions: of one client's user or token at once, those of overlays included
}

func (s *Sandbox) keys() []key {
	return []key{
		flagKey("enabled", &s.Enabled),
		repoKey("repo", &s.Repo),
		{"workspace", func(p *parser, n *yaml.Node) { s.Workspace = p.workspace(n) }},
		timeKey("timeout", &s.Timeout, time.Second, maxSandbox),
		timeKey("max_timeout", &s.MaxTimeout, time.Second, maxSandbox),
		sizeKey("output_limit", &s.OutputLimit, 1<<10, 4<<20),
		flagKey("partial_output", &s.PartialOutput),
		timeKey("session_timeout", &s.SessionTimeout, time.Second, 7*24*time.Hour),
		{"image", func(p *parser, n *yaml.Node) {
			s.Image = p.text("image", n)
			if s.Image != "" && job.CheckImageName(s.Image) != nil {
				p.wanted("image", "the name of a root file system such as debian-12", n)
			}
		}},
		sizeKey("disk", &s.Disk, 16<<20, 1<<50),
		countKey("max_sessions", &s.MaxSessions, 128),
	}
}

// maxSandbox is the longest that a command can be given.
const maxSandbox = 24 * time.Hour

func (w *writer) sandbox(s Sandbox) {
	w.line("enabled: %t", s.Enabled)
	if s.Repo != "" {
		w.line("repo: %s", quote(s.Repo))
	}
	if s.Workspace != nil {
		w.line("workspace: %s", *s.Workspace)
	}
	w.line("timeout: %s\nmax_timeout: %s", s.Timeout, s.MaxTimeout)
	w.line("output_limit: %s\npartial_output: %t", job.FormatSize(s.OutputLimit), s.PartialOutput)
	w.line("session_timeout: %s", s.SessionTimeout)
	if s.Image != "" {
		w.line("image: %s", quote(s.Image))
	}
	if s.Disk != 0 {
		w.line("disk: %s", job.FormatSize(s.Disk))
	}
	w.line("max_sessions: %d", s.MaxSessions)
}
