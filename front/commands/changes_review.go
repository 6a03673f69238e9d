package commands

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"corral/front/cli"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/isolate/wire"
	"corral/job"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

// ReviewName is the name under which corral agent runs the command, on its terminal. Descriptor 3 is the connection to the supervisor.
const ReviewName = "session-review"

// reviewDescriptor is the connection.
const reviewDescriptor = 3

// ReviewCommand shows the changes of an open session and asks what is to become of them. Its exit code is 0 if it has ended the session: it
// had no changes, or they were applied or discarded.
func ReviewCommand(args []string) error {
	conn, err := wire.NewConn(os.NewFile(reviewDescriptor, "supervisor"))
	if err = errors.Join(err, embed.Drop()); err != nil || len(args) != 1 {
		return errors.Join(err, errors.New(ReviewName+" is for internal use by corral"))
	}
	c := client.New(conn)
	defer c.Close()
	ctx, stop := cli.UntilStopped()
	defer stop()
	s, err := job.FindSession(ctx, c, args[0], false)
	if err != nil {
		return err
	}
	v := &changesView{options: changesOptions{verb: "show"}, sessions: c, runner: c, session: s, layer: changes.Of(s)}
	v.layer.Pipe, v.layer.Digest, v.layer.Claim = os.Pipe, true, claimOf("review")
	ended, err := v.review(ctx, bufio.NewReader(os.Stdin))
	if err == nil && !ended {
		return cli.Exit(1, nil)
	}
	return err
}

// review shows the changes, and does what a person says until nothing is left to ask.
func (v *changesView) review(ctx context.Context, answers *bufio.Reader) (ended bool, err error) {
	var lines lineCounter
	sum, err := changes.Patch(ctx, v.runner, v.layer, &lines, nil)
	if err != nil {
		return false, err
	}
	if sum.Files+sum.LeftCount+sum.OfGit == 0 && sum.Whole() {
		return v.forget(ctx)
	}
	if err := v.show(ctx); err != nil {
		return false, err
	}
	cli.Warn("files changed: %d, lines added: %d, removed: %d", sum.Files, lines.added, lines.removed)
	for {
		fmt.Fprint(os.Stderr, "corral: apply, discard, keep, or view the patch? [a/d/k/v] ")
		answer, err := answers.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "apply":
			return v.applyReviewed(ctx, sum.Digest)
		case "d", "discard":
			return v.forget(ctx)
		case "k", "keep":
			return false, nil
		case "v", "view":
			if err := v.diff(ctx); err != nil {
				return false, err
			}
		}
		if err != nil { // no one answers: nothing is lost
			fmt.Fprintln(os.Stderr)
			return false, nil
		}
	}
}

// forget ends the session, and keeps nothing.
func (v *changesView) forget(ctx context.Context) (bool, error) {
	_, err := v.sessions.CloseSession(ctx, v.session.ID, false)
	return err == nil, err
}

// applyReviewed applies the changes that were shown, and no others. The session ends if it has nothing else.
func (v *changesView) applyReviewed(ctx context.Context, shown stream.Digest) (bool, error) {
	v.options.verb, v.options.expect, v.layer.Digest, v.layer.Claim = "apply", shown, false, claimOf("apply")
	if err := v.apply(ctx); err != nil || v.gitElsewhere() {
		return false, err
	}
	return v.forget(ctx)
}

// A lineCounter counts the lines that a patch adds and removes.
type lineCounter struct {
	added, removed int64
	begin          []byte // of the line that is being written
	old, new       int    // lines that are left in the hunk
}

// maxHunk is more bytes than the line has that begins a hunk. Of a line, no more are kept.
const maxHunk = 200

// Write implements io.Writer.
func (c *lineCounter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		c.begin = append(c.begin, line[:min(len(line), maxHunk-len(c.begin))]...)
		if whole {
			c.line(c.begin)
			c.begin = c.begin[:0]
		}
		rest = more
	}
	return len(p), nil
}

func (c *lineCounter) line(line []byte) {
	switch {
	case c.old <= 0 && c.new <= 0:
		c.old, c.new = hunk(string(line))
	case len(line) > 0 && line[0] == '+':
		c.added++
		c.new--
	case len(line) > 0 && line[0] == '-':
		c.removed++
		c.old--
	case len(line) > 0 && line[0] == '\\': // "\ No newline at end of file"
	default:
		c.old--
		c.new--
	}
}

// hunk returns how many lines of both files a hunk has, 0 and 0 if the line does not begin one: "@@ -1,2 +3 @@".
func hunk(line string) (old, now int) {
	var from, to string
	if n, err := fmt.Sscanf(line, "@@ -%s +%s @@", &from, &to); n != 2 || err != nil {
		return 0, 0
	}
	count := func(s string) int {
		n := 1
		if _, after, with := strings.Cut(s, ","); with {
			if _, err := fmt.Sscanf(after, "%d", &n); err != nil {
				return 0
			}
		}
		return n
	}
	return count(from), count(to)
}
