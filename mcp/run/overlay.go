package run

import (
	"corral/job"
	"corral/mcp/tool"
)

// An overlay is the part of a reply about the session's copy of a repository: all changes by the session's jobs so far.
type overlay struct {
	Handle     string     `json:"changesHandle,omitempty"`     // workspace overlay: name of the session's changes for the command corral changes
	Changes    *[]changed `json:"changes,omitempty"`           // workspace overlay: all differences from the repository so far, which itself is unchanged
	More       int        `json:"changesMore,omitempty"`       // how many more
	Bytes      *int64     `json:"changesBytes,omitempty"`      // size of all changes
	Incomplete bool       `json:"changesIncomplete,omitempty"` // not all paths were examined
	Reason     string     `json:"changesReason,omitempty"`     // why the changes are not listed, or why there is no patch
	Patch      string     `json:"patchArtifact,omitempty"`     // handle for runtime_query_output: all changes as one patch for git apply
	PatchLess  bool       `json:"patchIncomplete,omitempty"`   // the patch lacks some of the changes
}

// A changed is one path that differs from the repository.
type changed struct {
	Path      string         `json:"path"`
	Kind      job.ChangeKind `json:"kind" enum:"added,modified,deleted,replaced,mode"`
	Type      job.FileType   `json:"type" enum:"file,directory,link,other"`
	Bytes     int64          `json:"bytes"`
	Sensitive bool           `json:"sensitive,omitempty"` // makes tools outside the sandbox run code or behave differently
}

// SessionNotes tells a client that its session is not the one of its earlier calls, and why, and that sessions may end for lack of room.
func SessionNotes(r *job.Record) (notes []string) {
	if r.SessionReplaced != "" {
		notes = append(notes, r.SessionReplaced.String()+"; this is a new one, and files from earlier calls are gone")
	}
	if r.Result.RoomShort {
		notes = append(notes, roomShort)
	}
	if note := r.Result.GitNote(); note != "" {
		notes = append(notes, note)
	}
	return notes
}

// Left tells a client that processes which a shell command had left running ended with it; it has one element at most. Helpers of other
// programs that end a moment later are nobody's concern.
func Left(r *job.Record) []string {
	q := r.Request // nil once a job in the background has ended
	if !r.Result.Left || q == nil || q.Runtime != "" && q.Runtime != "shell" {
		return nil
	}
	return []string{"processes that it had left running in the background ended with the call: background: true keeps it running"}
}

const roomShort = "the disk of the sessions has little room left: when it is used up, writes fail with ENOSPC (no space left on device), " +
	"and sessions that are idle end for new ones (hint: end sessions, or make room on the file system of the supervisor's state directory)"

func overlayOf(r *job.Record) overlay {
	if r.Session == "" || r.Decision.Spec.Workspace != job.Overlay {
		return overlay{}
	}
	o := overlay{Handle: r.Session, Reason: tool.Clean(r.ChangesReason)}
	if c := r.Changes; c != nil {
		list := make([]changed, 0, len(c.Entries))
		for _, e := range c.Entries {
			list = append(list, changed{tool.Clean(e.Path), e.Kind, e.Type, e.Bytes, e.Sensitive})
		}
		o.Changes, o.More, o.Bytes, o.Incomplete = &list, c.More, &c.Bytes, c.Incomplete
		if o.Patch, o.PatchLess = c.Patch, c.PatchIncomplete; c.PatchReason != "" {
			o.Reason = "no patch: " + tool.Clean(c.PatchReason)
		}
	}
	return o
}
