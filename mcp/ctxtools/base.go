package ctxtools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/index"
)

// Stats is the tool ctx_stats: it reports the contents of the knowledge base, and how much output stayed out
// of the caller's context.
type Stats struct{ *Suite }

// maxStatSources is the maximum number of sources in a reply.
const maxStatSources = 50

const statsDescription = `Tell how much is indexed, from which sources, and how much output this session kept out of your context.`

// Name implements Tool.
func (t *Stats) Name() string { return "ctx_stats" }

// Definition implements Tool.
func (t *Stats) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "What is indexed", Description: statsDescription,
		Input: tool.InputSchema(repoArg{}, tool.Lenient, nil), Output: tool.ReplySchema[statsReply](), TextOnly: true,
		ReadOnly: true, Idempotent: true,
	}
}

// A baseReply describes a knowledge base.
type baseReply struct {
	Repo     string        `json:"repoId"` // id of the repository
	Sources  int           `json:"sources"`
	Sections int           `json:"sections"`
	Lines    int64         `json:"lines"`
	Bytes    int64         `json:"bytes"` // of text
	Disk     int64         `json:"diskBytes"`
	Oldest   string        `json:"oldest,omitempty"` // when the oldest source was indexed, RFC 3339
	Newest   string        `json:"newest,omitempty"`
	BySource []sourceReply `json:"bySource,omitempty"` // the newest first
}

// A sourceReply describes one source of a knowledge base.
type sourceReply struct {
	Source   string `json:"source"`
	Time     string `json:"time"`
	Sections int    `json:"sections"`
	Lines    int64  `json:"lines"`
	Bytes    int64  `json:"bytes"`
	Artifact string `json:"artifactHandle,omitempty"`
	Stream   string `json:"stream,omitempty"`
}

func baseOf(repo string, s index.Stats) *baseReply {
	r := &baseReply{Repo: repo, Sources: s.Sources, Sections: s.Sections, Lines: s.Lines, Bytes: s.Bytes, Disk: s.Disk}
	if s.Sources > 0 {
		r.Oldest, r.Newest = stamp(s.Oldest), stamp(s.Newest)
	}
	for _, one := range s.BySource[:min(len(s.BySource), maxStatSources)] {
		r.BySource = append(r.BySource, sourceReply{
			Source: singleLine(one.Name), Time: stamp(one.Time), Sections: one.Sections, Lines: one.Lines, Bytes: one.Bytes,
			Artifact: one.Artifact, Stream: one.Stream,
		})
	}
	return r
}

// size returns the counts of a knowledge base as text.
func (r *baseReply) size() string {
	return fmt.Sprintf("%s, %s, %s", Counted(r.Sources, "source"), Counted(r.Sections, "section"), kilobytes(r.Bytes))
}

// A statsReply is the structuredContent of ctx_stats.
type statsReply struct {
	said
	Base     *baseReply  `json:"base"`
	Indexing int         `json:"indexing,omitempty"` // number of outputs that are still being indexed
	Session  sessionSums `json:"session"`            // calls of these tools in this session
}

// Call implements Tool.
func (t *Stats) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	var a repoArg
	if err := tool.Decode(arguments, &a, tool.Lenient); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	base, err := t.searchable(caller, a.Repo)
	if err != nil {
		return failed(err)
	}
	stats, err := t.Knowledge.Stats(ctx, base)
	if err != nil {
		return failed(indexError(ctx, err))
	}
	reply := &statsReply{Base: baseOf(base.Repo, stats), Indexing: t.indexing(base), Session: t.sums.of(run.OwnerOf(caller))}
	reply.Text = reply.words()
	return tool.TextResult(reply, reply.Text, false), nil
}

func (r *statsReply) words() string {
	var b strings.Builder
	if r.Base.Sources == 0 {
		fmt.Fprintf(&b, "Knowledge base of %s is empty.\n", singleLine(r.Base.Repo))
	} else {
		fmt.Fprintf(&b, "Knowledge base of %s: %s of text, %s on disk\n", singleLine(r.Base.Repo), r.Base.size(),
			kilobytes(r.Base.Disk))
		fmt.Fprintf(&b, "Indexed from %s to %s\n\n", r.Base.Oldest, r.Base.Newest)
	}
	for _, s := range r.Base.BySource {
		fmt.Fprintf(&b, "  - %s: %s, %s (%s)\n", s.Source, Counted(s.Sections, "section"), kilobytes(s.Bytes), s.Time)
	}
	if more := r.Base.Sources - len(r.Base.BySource); more > 0 {
		fmt.Fprintf(&b, "  … and %d more\n", more)
	}
	if r.Indexing > 0 {
		b.WriteString(Counted(r.Indexing, "output") + " still being indexed\n")
	}
	s := r.Session
	fmt.Fprintf(&b, "\nThis session: %s, %s of output, %s returned, %s kept out of the context.",
		Counted(s.Calls, "call"), kilobytes(s.Output), kilobytes(s.Returned), kilobytes(s.KeptOut))
	return b.String()
}

// Purge is the tool ctx_purge: it empties the caller's knowledge base of a repository.
type Purge struct{ *Suite }

// purgeArgs are the arguments of ctx_purge.
type purgeArgs struct {
	Confirm bool `arg:"confirm"`
	repoArg
}

const purgeDescription = `Remove all that is indexed, for good. Output kept for runtime_query_output stays.`

// Name implements Tool.
func (t *Purge) Name() string { return "ctx_purge" }

// Definition implements Tool.
func (t *Purge) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Remove what is indexed", Description: purgeDescription,
		Input: tool.InputSchema(purgeArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[purgeReply](), TextOnly: true,
		Destructive: true, Idempotent: true,
	}
}

// A purgeReply is the structuredContent of ctx_purge.
type purgeReply struct {
	said
	Removed *baseReply `json:"removed"`
}

// Call implements Tool.
func (t *Purge) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &purgeArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	if !a.Confirm {
		return failed(&tool.Error{
			Code: tool.CodeInvalid, Message: "Nothing was removed: ctx_purge removes all that is indexed, for good. Call it with confirm: true.",
			Details: map[string]any{"argument": "confirm"},
		})
	}
	base, err := t.searchable(tool.CallerOf(ctx), a.Repo)
	if err != nil {
		return failed(err)
	}
	t.pending.Drop(ctx, base) // it would be added after the purge
	removed, err := t.Knowledge.Purge(ctx, base)
	if err != nil {
		return failed(indexError(ctx, err))
	}
	reply := &purgeReply{Removed: baseOf(base.Repo, removed)}
	reply.Removed.BySource = nil
	reply.Text = "Purged the knowledge base of " + singleLine(base.Repo) + ": " + reply.Removed.size() + " removed."
	if removed.Sources == 0 {
		reply.Text = "The knowledge base of " + singleLine(base.Repo) + " is empty: there was nothing to remove."
	}
	return tool.TextResult(reply, reply.Text, false), nil
}
