package commands

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"corral/front/cli"
	"corral/internal/text"
	"corral/job"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
)

// A changeJSON is the JSON form of a change.
type changeJSON struct {
	Path string `json:"path"`
	// Bytes64 is the path in base64, if it is not UTF-8.
	Bytes64   string         `json:"pathBase64,omitempty"`
	Kind      job.ChangeKind `json:"kind"`
	Type      job.FileType   `json:"type"`
	OldType   job.FileType   `json:"oldType,omitempty"`
	Bytes     int64          `json:"bytes"`
	Below     int64          `json:"pathsBelow,omitempty"`
	Mode      string         `json:"mode,omitempty"`
	OldMode   string         `json:"oldMode,omitempty"`
	Link      string         `json:"link,omitempty"`
	Sensitive bool           `json:"sensitive,omitempty"`
	Skipped   bool           `json:"skipped,omitempty"`
}

func newChangeJSON(e *stream.Entry) changeJSON {
	c := changes.Change(e)
	j := changeJSON{
		Path: e.Path, Bytes64: pathBase64(e.Path), Kind: c.Kind, Type: c.Type, Bytes: c.Bytes, Below: e.Below, Link: e.Link,
		Sensitive: e.Sensitive, Skipped: e.State == stream.Skipped,
	}
	if e.Kind == job.ChangeReplaced {
		j.OldType = e.OldType
	}
	if e.Kind != job.ChangeDeleted && e.Type != job.TypeLink {
		j.Mode = fmt.Sprintf("%04o", e.Mode)
	}
	if e.OldType != "" && e.OldType != job.TypeLink {
		j.OldMode = fmt.Sprintf("%04o", e.OldMode)
	}
	return j
}

// pathBase64 returns the path in base64 if JSON cannot represent it, else "".
func pathBase64(path string) string {
	if utf8.ValidString(path) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(path))
}

// changeLine returns a change as a line of text.
func changeLine(e *stream.Entry) string {
	name, size := text.Quote(e.Path), cli.FormatBytes(changes.Change(e).Bytes)
	switch {
	case e.Type == job.TypeDirectory && e.Kind == job.ChangeDeleted:
		name += "/"
		if e.Below > 0 {
			name += fmt.Sprintf(" (%d below)", e.Below)
		}
	case e.Type == job.TypeDirectory:
		name, size = name+"/", ""
	case e.Type == job.TypeLink && e.Kind != job.ChangeDeleted:
		name, size = name+" -> "+text.Quote(e.Link), ""
	case e.Type == job.TypeOther:
		size = ""
	}
	if e.Kind == job.ChangeReplaced {
		name += " (was a " + string(e.OldType) + ")"
	}
	switch {
	case e.Kind == job.ChangeMode:
		size = fmt.Sprintf("%04o", e.Mode)
		name += fmt.Sprintf(" (was %04o)", e.OldMode)
	case e.Kind == job.ChangeDeleted || e.Type == job.TypeLink || e.Type == job.TypeOther:
	case e.OldType == e.Type && e.Mode != e.OldMode:
		name += fmt.Sprintf(" (%04o, was %04o)", e.Mode, e.OldMode)
	case e.OldType != e.Type && e.Mode&^0o755 != 0: // more than the usual umask leaves
		name += fmt.Sprintf(" (%04o)", e.Mode)
	}
	if e.State == stream.Skipped {
		name += " (skipped: a FIFO, a socket or a device)"
	}
	return fmt.Sprintf("%-9s %10s  %s\n", e.Kind, size, name)
}

// warnSensitive writes lines about sensitive entries.
func warnSensitive(sensitive []*stream.Entry) {
	shown, counted := job.RankSensitive(sensitive, func(e *stream.Entry) string { return e.Path })
	for _, e := range shown {
		cli.Warn("sensitive path %s: %s", e.Kind, text.Quote(e.Path))
	}
	if len(counted) > 0 {
		cli.Warn("%s", job.SensitiveInPackages(len(counted), text.Quote(counted[0].Path), "--json marks each"))
	}
}

func (v *changesView) show(ctx context.Context) error {
	out := cli.NewEscaper(os.Stdout)
	list := []changeJSON{}
	var sensitive []*stream.Entry
	sum, err := changes.Show(ctx, v.runner, v.layer, maxShown, v.options.paths, func(e *stream.Entry) error {
		if v.options.json {
			list = append(list, newChangeJSON(e))
			return nil
		}
		if e.Sensitive {
			sensitive = append(sensitive, e)
		}
		_, err := fmt.Fprint(out, changeLine(e))
		return err
	})
	if err == nil && sum.Failed != "" {
		err = errors.New(sum.Failed)
	}
	newer, newErr := v.newer(ctx)
	err = errors.Join(err, newErr)
	if err == nil && v.options.json {
		err = cli.WriteJSON(out, struct {
			Session    string       `json:"session"`
			Repo       string       `json:"repo"`
			Opened     time.Time    `json:"opened"`
			Kept       bool         `json:"kept"`
			Changes    []changeJSON `json:"changes"`
			More       int64        `json:"changesMore"`
			Bytes      int64        `json:"bytes"`
			Incomplete bool         `json:"incomplete"`
			Missed     string       `json:"missed,omitempty"`
			Digest     string       `json:"digest,omitempty"`
			Newer      []newerJSON  `json:"repositoryChanges"`
			NewerMore  int64        `json:"repositoryChangesMore"`
		}{
			v.session.ID, v.session.Repo, v.session.Opened, v.session.Kept, list, sum.More, sum.Bytes, sum.Incomplete, sum.Missed,
			sum.Digest.String(),
			newer.list, newer.more(),
		})
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if v.options.json {
		return nil
	}
	warnSensitive(sensitive)
	if sum.More > 0 {
		cli.Warn("%d more changes", sum.More)
	}
	if sum.Incomplete {
		cli.Warn("%s: there may be more changes", unexamined(sum))
	}
	newer.warn(v.session.ID)
	if sum.Entries > 0 {
		printDigest(sum.Digest)
	}
	return nil
}

// unexamined says that a list is incomplete, and where.
func unexamined(sum *stream.Sum) string {
	if sum.Missed == "" {
		return "not everything could be examined"
	}
	return "not everything could be examined: " + text.Quote(sum.Missed) + " could not"
}

// A conflictJSON is the JSON form of a conflict.
type conflictJSON struct {
	Path    string `json:"path"`
	Bytes64 string `json:"pathBase64,omitempty"`
	Reason  string `json:"reason"`
}

// An applyReport reports the progress and the result of an apply.
type applyReport struct {
	view      *changesView
	out       *cli.Escaper
	sum       *stream.Sum
	done      []changeJSON
	conflicts []conflictJSON
	sensitive []*stream.Entry
	removed   bool
}

func (r *applyReport) applied(e *stream.Entry) error {
	if r.view.options.json {
		if len(r.done) < maxShown {
			r.done = append(r.done, newChangeJSON(e))
		}
		return nil
	}
	if e.Sensitive {
		r.sensitive = append(r.sensitive, e)
	}
	_, err := fmt.Fprint(r.out, changeLine(e))
	return err
}

func (r *applyReport) conflict(c stream.Conflict) error {
	if r.view.options.json {
		r.conflicts = append(r.conflicts, conflictJSON{c.Path, pathBase64(c.Path), c.Reason.String()})
		return nil
	}
	why := c.Reason.String()
	if c.Reason == stream.Unwritable {
		why += ": " + text.Quote(filepath.Join(r.view.session.Repo, filepath.Dir(c.Path)))
	}
	cli.Warn("conflict: %s: %s", text.Quote(c.Path), why)
	return nil
}

// end reports the result.
func (r *applyReport) end() error {
	s, o := r.sum, r.view.options
	if o.json {
		return cli.WriteJSON(r.out, struct {
			Session    string         `json:"session"`
			Applied    bool           `json:"applied"`
			Changes    []changeJSON   `json:"changes"`
			More       int64          `json:"changesMore"`
			Conflicts  []conflictJSON `json:"conflicts"`
			MoreOfThem int64          `json:"conflictsMore"`
			Failed     string         `json:"failed,omitempty"`
			Removed    bool           `json:"layerRemoved"`
			Digest     string         `json:"digest,omitempty"`
		}{
			r.view.session.ID, !o.dry && s.Conflicts == 0 && s.Failed == "", r.done, s.Applied + s.Skipped - int64(len(r.done)),
			r.conflicts, s.Conflicts - int64(len(r.conflicts)), s.Failed, r.removed, s.Digest.String(),
		})
	}
	warnSensitive(r.sensitive)
	if more := s.Conflicts - maxReported(s.Conflicts); more > 0 {
		cli.Warn("%d more conflicts", more)
	}
	if o.dry && s.Entries > 0 {
		printDigest(s.Digest)
	}
	switch {
	case s.Failed != "" && s.Applied == 0 && o.expect != (stream.Digest{}) && o.expect != s.Digest:
		cli.Warn("%s", s.Failed)
		fmt.Fprintln(os.Stderr, "hint: review again: corral changes diff "+r.view.session.ID)
	case s.Conflicts > 0 && s.Applied == 0:
		fmt.Fprintln(os.Stderr, "corral: nothing was applied")
		fmt.Fprintln(os.Stderr, "hint: apply other changes by naming their paths, or settle the conflicts: corral changes refresh "+r.view.session.ID)
	case s.Failed != "":
		cli.Warn("%s; %d of %d changes are applied", s.Failed, s.Applied, s.Entries)
		fmt.Fprintln(os.Stderr, "hint: remove the cause and apply again: applied changes are kept")
	case r.removed:
		cli.Warn("all changes are applied, and the session's layer is removed")
	}
	return nil
}

// maxReported returns how many of n conflicts corral-layer reports.
func maxReported(n int64) int64 { return min(n, 10_000) }
