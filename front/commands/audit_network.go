package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"corral/front/cli"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/job"
	"corral/store/audit"
)

// A networkPrinterOptions is the command `corral network log`: it prints what jobs reached, and what they were denied. The zero value of each
// option but State selects all.
type networkPrinterOptions struct {
	State      string // state directory of the supervisor
	Repo, User string // as --repo and --user of corral audit
	Since      time.Time
	Denied     bool // only jobs that were denied something
	Follow     bool // wait for jobs that end
	JSON       bool
}

// networkJSON is a job in the output with --json.
type networkJSON struct {
	Time     time.Time       `json:"time"` // when the job ended
	Instance string          `json:"instance"`
	Job      string          `json:"job"`
	UID      *uint32         `json:"uid"`
	Account  *uint32         `json:"account,omitempty"` // behind sudo
	Repo     string          `json:"repo"`
	Claimed  networkClaims   `json:"claimed"`
	Network  *job.NetworkUse `json:"network"`
}

// networkClaims are what a front-end says of a job.
type networkClaims struct {
	Tool      string `json:"tool,omitempty"`
	Principal string `json:"principal,omitempty"`
	Session   string `json:"session,omitempty"`
	Request   string `json:"request,omitempty"` // the trace id
	Repo      string `json:"repo,omitempty"`
	Network   string `json:"network,omitempty"` // what it asked for
}

// Run prints the log, and drops root.
func (o *networkPrinterOptions) Run() error {
	r, err := openAudit(o.State)
	if err != nil {
		return err
	}
	defer r.Close()
	f := &audit.Filter{User: o.User, Repo: o.Repo}
	if err := f.Prepare(); err != nil {
		return err
	}
	p := &networkPrinter{o, f, map[uint64]*audit.Record{}, os.Stdout}
	for l, err := range r.Lines(0) {
		if err := errors.Join(err, p.line(l)); err != nil {
			return err
		}
	}
	if !o.Follow {
		return nil
	}
	for l, err := range r.Follow(followPause) {
		if err := errors.Join(err, p.line(l)); err != nil {
			return err
		}
	}
	cli.Note("the log continues in another file: run this again to follow it")
	return nil
}

// A networkPrinter prints the jobs that had network access.
type networkPrinter struct {
	*networkPrinterOptions
	filter *audit.Filter
	begun  map[uint64]*audit.Record // first records of jobs that have not ended, by number
	to     io.Writer
}

// line prints the job whose last record is on a line. A damaged record is skipped: finding damage is the task of corral audit verify.
func (p *networkPrinter) line(l *audit.Line) error {
	if l == nil {
		return nil
	}
	r, err := l.Record()
	if err != nil {
		reportDamage(err)
		return nil
	}
	if r.Event == audit.Decided {
		p.begun[r.Seq] = r
		return nil
	}
	if !r.Event.Closes() {
		return nil
	}
	first := p.begun[r.Of]
	delete(p.begun, r.Of)
	if first == nil || r.Reached == "" || r.Time.Before(p.Since) || !p.filter.About(first) {
		return nil
	}
	use := client.NetworkUse(r.Reached)
	if p.Denied && use != nil && use.Denied == 0 && !use.Lost {
		return nil
	}
	if p.JSON {
		return text.WriteJSON(p.to, networkJSON{
			r.Time, r.Instance, r.Job, first.Peer, first.Account, first.RepoPath(),
			networkClaims{
				first.Claimed["tool"], first.Claimed["principal"], first.Claimed["session"], first.Claimed["request"],
				first.Claimed["repo"], first.Claimed["network"],
			},
			use,
		}, "")
	}
	_, err = io.WriteString(p.to, networkLines(first, r, use))
	return err
}

// networkLines returns a job for people: a line about it, and one for each host that it was denied.
func networkLines(first, last *audit.Record, use *job.NetworkUse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", last.Time.Local().Format("2006-01-02 15:04:05"), last.Job)
	if first.Peer != nil {
		fmt.Fprintf(&b, " uid=%d", *first.Peer)
	}
	if first.Account != nil {
		fmt.Fprintf(&b, " account=%d", *first.Account)
	}
	fmt.Fprintf(&b, " repo=%s", audit.Shown(first.RepoPath()))
	for _, name := range []string{"tool", "principal", "request"} {
		if value := first.Claimed[name]; value != "" {
			fmt.Fprintf(&b, " claimed.%s=%s", name, audit.Shown(value))
		}
	}
	if use == nil {
		return text.Escape(b.String()+": the record is not readable: "+last.Reached) + "\n"
	}
	fmt.Fprintf(&b, ": %d connections, %d bytes up, %d down, %d denied", use.Connections, use.BytesUp, use.BytesDown, use.Denied)
	lines := []string{b.String()}
	denied, _ := use.Report(len(use.Denials))
	for _, line := range denied {
		lines = append(lines, "  "+strings.TrimPrefix(line, "network: "))
	}
	for n := range lines {
		lines[n] = text.Escape(lines[n]) + "\n"
	}
	return strings.Join(lines, "")
}
