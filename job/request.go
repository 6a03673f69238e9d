package job

import "time"

// A Request is what a client asked for: the arguments of a tool are decoded, and nothing is decided yet.
type Request struct {
	Tool      string // that was called, by its first name: "runtime_execute"
	Principal string // who asks: "user:ada", "token:ci"
	Session   string // of the client, "" if it has none
	ID        string // of this request, [0-9a-f]{32}: the trace's, if the client sent one
	Repo      string // a repository's id
	Runtime   string // a row of package lang, or Starlark; "" with a Command
	// Command is a program and its arguments, to be run as they are: there is no runtime then, and Executable, Args and Code
	// stay empty. A program without a slash is looked for in the job's PATH.
	Command []string
	// Executable is the program to run the code with; "" is the runtime's own choice.
	Executable string
	Args       []string // for the program, or for the code
	Code       *string  // nil: Args alone
	Stdin      string
	// Streamed is input that the Output feeds while the job runs, see Feeder; Stdin is "" then. Nothing can be said of it
	// ahead: in decisions, in the log and for rules StdinStreamed takes the place of its hash.
	Streamed bool
	Dir      string // relative to the repository; "" and "." are the repository
	// Env are variables that the client sets in the job's environment, after all others; nil takes one away.
	Env      map[string]*string
	Terminal Size // non-zero: the job has a terminal, which the Output takes, see Screen
	// Workspace is what the client wants of the repository, nil is what the policy says. It never gets more than that: what
	// writes through becomes Overlay in a repository of that kind, and is denied in a ReadOnly one.
	Workspace *Workspace
	Protect   Protection // of sensitive paths, see Spec; the policy's, if that is more
	Limits    Limits     // as asked for: a zero field leaves it to the policy
	// Usual is what holds for a zero field of Limits before the policy's own defaults, for protocols that name one. What the
	// policy does not allow lowers it, and denies nothing.
	Usual Limits
	// Output is how many bytes a program in Starlark may write; 0 is the policy's default. Others have no such bound.
	Output int64
	// Background is a job that goes on when the client has its reply: the operator says apart how long.
	Background bool
	// Root asks for a session of the client with a root file system of its own, where the request is to run: see
	// SessionSpec. Dir is an absolute path there.
	Root bool
}

// StdinStreamed stands for the hash of an input that is not known when the job begins.
const StdinStreamed = "streamed"

// A Decision is what the policy made of a request.
type Decision struct {
	// Rule is the rule that was against it, "" when it is allowed; Reasons say why, for the client.
	Rule    string
	Reasons []string
	// Hash identifies this decision on this request: 64 hex digits. See package policy for what it covers.
	Hash string
	// Missing is not empty when the request is allowed and no program of this host can run it: what was looked for, where.
	Missing string
	// Spec is what to run. It is complete when the request is allowed and nothing is missing.
	Spec Spec
	// Code, Args and Stdin are SHA-256, in hex, of the code, the arguments and the input: "" without code, without input.
	// Stdin is StdinStreamed when the input comes while the job runs. Args is of the Command, if there is one.
	Code, Args, Stdin string
}

// Allowed says whether no rule was against the request.
func (d *Decision) Allowed() bool { return d.Rule == "" }

// A File is written into a job's own file system before its program starts, by the job's user, with mode 0600.
type File struct {
	Path    string // absolute and clean, in a private directory; its last directory is made if it is not there
	Content string
}

// A Claim is what a front-end says of a request in the audit log. The supervisor writes it down and believes none of it.
// Fields are bytes; MaxClaim of each are kept.
type Claim struct {
	Tool, Principal, Session, Request string
	Repo, Runtime                     string
	Decision, Code, Args, Stdin       string // hashes, as a Decision has them
	Artifact                          string // handle that the output will have, "" if it is not kept
	Reason                            string // why a request was denied
}

// MaxClaim is how many bytes of a Claim's field are kept; of Reason it is four times as many.
const MaxClaim = 256

// A Record says what became of a request.
type Record struct {
	Request  *Request
	Decision Decision
	Status   Status
	Result   Result // of the job, if there was one
	// Message says what corral itself has to say: why nothing ran. "" when a job ran.
	Message string
	// Refusal is what the supervisor had against it, where that is why nothing ran; else nil.
	Refusal *Refusal
	// Session is the session that the job ran in, "" if it had none. With workspace Overlay it is what `corral changes`
	// knows the changes by. Anew says that an earlier session of the client ended, and what was in its layer is not in this
	// one's.
	Session string
	Anew    bool
	// Changes are what jobs of the session have changed in the repository so far, with workspace Overlay; nil when they were
	// not listed, and then ChangesReason says why, unless nobody asked for them.
	Changes       *Changes
	ChangesReason string
	Created       time.Time
	Phases        Phases
	Queued        time.Duration // how long it waited for a place
	Duration      time.Duration // from the request to its end
}
