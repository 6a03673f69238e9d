package mcp

import "corral/job"

// An overlay is the part of a reply about the session's copy of a repository: all changes by the session's jobs so far.
type overlay struct {
	Handle     string     `json:"changesHandle,omitempty"`
	Changes    *[]changed `json:"changes,omitempty"`
	More       int        `json:"changesMore,omitempty"`
	Bytes      *int64     `json:"changesBytes,omitempty"`
	Incomplete bool       `json:"changesIncomplete,omitempty"`
	Reason     string     `json:"changesReason,omitempty"`
	Patch      string     `json:"patchArtifact,omitempty"`
	PatchLess  bool       `json:"patchIncomplete,omitempty"`
}

// A changed is one path that differs from the repository.
type changed struct {
	Path      string         `json:"path"`
	Kind      job.ChangeKind `json:"kind"`
	Type      job.FileType   `json:"type"`
	Bytes     int64          `json:"bytes"`
	Sensitive bool           `json:"sensitive,omitempty"`
}

// sessionReplaced tells a client that its session is not the one of its earlier calls.
const sessionReplaced = "the previous session expired; this is a new one, and files from earlier calls are gone"

func overlayOf(r *job.Record) overlay {
	if r.Session == "" || r.Decision.Spec.Workspace != job.Overlay {
		return overlay{}
	}
	o := overlay{Handle: r.Session, Reason: clean(r.ChangesReason)}
	if c := r.Changes; c != nil {
		list := make([]changed, 0, len(c.Entries))
		for _, e := range c.Entries {
			list = append(list, changed{clean(e.Path), e.Kind, e.Type, e.Bytes, e.Sensitive})
		}
		o.Changes, o.More, o.Bytes, o.Incomplete = &list, c.More, &c.Bytes, c.Incomplete
		if o.Patch, o.PatchLess = c.Patch, c.PatchIncomplete; c.PatchReason != "" {
			o.Reason = "no patch: " + clean(c.PatchReason)
		}
	}
	return o
}

func overlaySchema() properties {
	return properties{
		{"changesHandle", text("workspace overlay: what corral changes knows the session's changes by")},
		{"changes", &schema{
			Type: "array", Description: "workspace overlay: what differs from the repository so far, which stays as it is",
			Items: &schema{Type: "object", Properties: properties{
				{"path", text("")},
				{"kind", &schema{Type: "string", Enum: []string{
					string(job.ChangeAdded), string(job.ChangeModified), string(job.ChangeDeleted), string(job.ChangeReplaced), string(job.ChangeMode),
				}}},
				{"type", &schema{Type: "string", Enum: []string{
					string(job.TypeFile), string(job.TypeDirectory), string(job.TypeLink), string(job.TypeOther),
				}}},
				{"bytes", integer("")},
				{"sensitive", boolean("makes tools outside run code or behave differently")},
			}},
		}},
		{"changesMore", integer("how many more")},
		{"changesBytes", integer("of all of them")},
		{"changesIncomplete", boolean("not everything was looked at")},
		{"changesReason", text("why they are not listed, or there is no patch of them")},
		{"patchArtifact", text("for runtime_query_output: all of them as one patch for git apply")},
		{"patchIncomplete", boolean("not all that differs is in the patch")},
	}
}
