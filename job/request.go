package job

import "time"

// A Request is what a client asked for: the decoded arguments of a tool, before any decision.
type Request struct {
	Tool      string // the tool's first name: "runtime_execute"
	Principal string // the caller: "user:ada", "token:ci"
	Session   string // of the client, "" if it has none
	ID        string // of this request, [0-9a-f]{32}: the trace id if the client sent one
	Client    string // what the client says of the request, for the audit log; see Claim
	Repo      string // id of the repository
	Runtime   string // a row of package runtimes, or Starlark; "" with a Command
	// Command is a program and its arguments, run unchanged: there is no runtime then, and Executable, Args and Code
	// stay empty. A program without a slash is looked up in the job's PATH.
	Command []string
	// Builtin is a program of corral's own that runs in place of Command[0]: ToolEdit, or ToolNone.
	Builtin Tool
	// Executable is the program that runs the code; "" lets the runtime choose.
	Executable string
	Args       []string // for the program, or for the code
	Code       *string  // nil means that only Args are given
	Stdin      string
	// Streamed means that the caller writes the input while the job runs, see Hooks; Stdin is "" then. The input is
	// not known in advance: decisions, the audit log and rules have StdinStreamed in place of its hash.
	Streamed bool
	Dir      string // relative to the repository; "" and "." mean the repository
	// Env are variables that the client sets in the job's environment, after all others; a nil value removes one.
	Env      map[string]*string
	Terminal Size // non-zero: the job has a terminal, which the caller receives, see Hooks
	// Workspace is the client's choice; nil takes the policy's. The client never gets more access than the policy
	// gives: Direct becomes Overlay in an overlay repository and is denied in a ReadOnly one.
	Workspace *Workspace
	// ReadOnly refuses all writes to the repository, see Spec.
	ReadOnly bool
	Bounds   Bounds     // of paths of the repository, see Spec
	Protect  Protection // of sensitive paths, see Spec; the policy's applies if it is stronger
	// Network is what the client asks for of the hosts that it may reach, see Spec; "" is all of them. The policy may have a
	// maximum.
	Network string
	// SessionNetwork is what the client asks for for the session of the request, which the jobs share that ask for the same: "" is the
	// policy's maximum.
	SessionNetwork string
	// NeedsNetwork denies the request if it may reach no host, for protocols in which a client asks whether it has network access.
	NeedsNetwork bool
	Limits       Limits // as requested: a zero field leaves the limit to the policy
	// Usual replaces zero fields of Limits before the policy's own defaults do, for protocols that define defaults. A
	// value above the policy's maximum is lowered, never denied.
	Usual Limits
	// Output is the maximum number of bytes that a Starlark program may write; 0 is the policy's default. Other
	// runtimes have no such bound.
	Output int64
	// Background is a job that continues after the client has its reply; the operator limits its time separately.
	Background bool
	// Root runs the request in a session of the client that has a root file system of its own, see SessionSpec. Dir
	// is an absolute path in it.
	Root bool
	// Share runs the request in a session of the client whose jobs share the home directory and /tmp, whatever the
	// workspace, see SessionSpec. Root implies it.
	Share bool
	// QueueWait is how long the request waits for another one to end, if the server's queue waits for less time. 0 leaves
	// it to the queue.
	QueueWait time.Duration
}

// StdinStreamed stands for the hash of input that is not known when the job starts.
const StdinStreamed = "streamed"

// A Decision is the policy's answer to a request.
type Decision struct {
	// Rule is the rule that denied the request, or "" if it is allowed; Reasons explain the denial to the client.
	Rule    string
	Reasons []string
	// Hash identifies this decision on this request: 64 hex digits. Package policy documents what it covers.
	Hash string
	// Missing is set when the request is allowed but this host has no program to run it: it names the programs and
	// where they were looked for.
	Missing string
	// Spec is the job to run. It is complete if the request is allowed and Missing is "".
	Spec Spec
	// Code, Args and Stdin are the SHA-256 hashes, in hex, of the code, the arguments and the input; "" if there is
	// none. Stdin is StdinStreamed if the input arrives while the job runs. With a Command, Args is its hash.
	Code, Args, Stdin string
}

// Allowed reports whether no rule denied the request.
func (d *Decision) Allowed() bool { return d.Rule == "" }

// A File is written to a job's own file system before its program starts, by the job's user, with mode 0600.
type File struct {
	Path    string // absolute and clean, in a private directory; its parent directory is created if missing
	Content string
}

// A Claim is a front-end's description of a request for the audit log. The supervisor records it without trusting it.
// Fields are arbitrary bytes, cut at MaxClaim.
type Claim struct {
	Tool, Principal, Session, Request string
	Repo, Runtime                     string
	Decision, Code, Args, Stdin       string // hashes, as in a Decision
	Artifact                          string // handle of the output, "" if it is not kept
	Reason                            string // why a request was denied
	Network                           string // what was asked for of the network, see Spec
	Client                            string // what the client says of the request: the ids that it has of it
	Argv                              string // the program and its arguments as a shell would take them, see RecordArgv
	Source                            string // the code, see RecordCode
}

// MaxClaim is the maximum number of bytes kept of each field of a Claim, except Reason, Network and Client, which may have four times as
// many, and Argv and Source, which have maximums of their own.
const (
	MaxClaim  = 256
	MaxArgv   = 4 << 10
	MaxSource = 16 << 10
)

// A Record is the outcome of a request.
type Record struct {
	Request  *Request
	Decision Decision
	Status   Status
	Result   Result // of the job, if one ran
	// Message is corral's own explanation of why nothing ran; "" if a job ran.
	Message string
	// Refusal is the supervisor's refusal, if that is why nothing ran; otherwise nil.
	Refusal *Refusal
	// Session is the session that the job ran in, "" if none. With workspace Overlay it is the id that `corral
	// changes` takes.
	Session string
	// SessionReplaced says why an earlier session of the client has ended whose files are not in this one; "" if there was none.
	SessionReplaced SessionEnd
	// Changes are what jobs of the session have changed in the repository so far, with workspace Overlay. It is nil
	// if they were not listed; ChangesReason says why, unless no listing was due.
	Changes       *Changes
	ChangesReason string
	Created       time.Time
	Phases        Phases
	Queued        time.Duration // time spent waiting in the queue
	Duration      time.Duration // from the request until its end
}
