package page

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"corral/internal/text"
	"corral/store/artifact"
)

const (
	// maxHistory is the maximum number of ended jobs of an answer, the newest.
	maxHistory = 200
	// maxOutput is how much of the end of a stored stream is shown, in bytes.
	maxOutput = 256 << 10
)

// An endedView is a job that has ended in the answers. Its texts are safe to show.
type endedView struct {
	Handle    string  `json:"handle"`
	ID        string  `json:"id"` // "" in output that an earlier version stored, as all fields of its run
	Repo      string  `json:"repo"`
	Tool      string  `json:"tool"`
	Runtime   string  `json:"runtime"`
	Principal string  `json:"principal"`
	Status    string  `json:"status"`
	Exit      *int    `json:"exit"`
	Signal    *string `json:"signal"`
	Limit     string  `json:"limit"`
	Ended     int64   `json:"endedMs"` // since 1970
	Duration  int64   `json:"durationMs"`
	Bytes     int64   `json:"bytes"` // of output
}

func endedOf(m *artifact.Manifest) endedView {
	v := endedView{
		Handle: shown(m.ArtifactID, maxName), Repo: shown(m.RepoID, maxName), Runtime: shown(m.Runtime, maxName),
		Principal: shown(m.Principal, maxName), Status: shown(m.Status, maxName), Exit: m.ExitCode,
		Ended: m.CreatedAt.UnixMilli(), Duration: m.DurationMs, Bytes: m.TotalStdout + m.TotalStderr,
	}
	if m.Signal != nil {
		name := shown(*m.Signal, maxName)
		v.Signal = &name
	}
	if m.Run != nil {
		v.ID, v.Tool, v.Limit = shown(m.Run.Job, maxName), shown(m.Run.Tool, maxName), shown(m.Run.Limit, maxName)
	}
	return v
}

// A storedView is one job that has ended, with its life.
type storedView struct {
	endedView
	Dir     string       `json:"dir"`
	Stdout  int64        `json:"stdoutBytes"`
	Stderr  int64        `json:"stderrBytes"`
	Expires int64        `json:"expiresMs"`
	Life    []momentView `json:"life"`
	CPU     int64        `json:"cpuMs"` // -1 is unknown
	Peak    int64        `json:"peakMemoryBytes"`
	Samples []sampleView `json:"samples"`
}

// A momentView is a moment in the life of a job.
type momentView struct {
	Name string `json:"name"`
	At   int64  `json:"atMs"` // since 1970
}

func storedOf(m *artifact.Manifest) storedView {
	v := storedView{
		endedView: endedOf(m), Dir: shown(m.RelativeCwd, maxName), Stdout: m.TotalStdout, Stderr: m.TotalStderr,
		Expires: m.ExpiresAt.UnixMilli(), CPU: -1, Peak: -1, Samples: []sampleView{}, Life: []momentView{},
	}
	if m.Run == nil {
		return v
	}
	v.CPU, v.Peak = m.Run.CPUMs, m.Run.Peak
	for _, s := range m.Run.Samples {
		v.Samples = append(v.Samples, sampleView{s.AtMs, s.CPUMs, s.Memory})
	}
	for _, one := range []struct {
		name string
		at   time.Time
	}{
		{"requested", m.Run.Requested}, {"decided", m.Run.Decided}, {"begun", m.Run.Begun}, {"ended", m.Run.Ended}, {"stored", m.CreatedAt},
	} {
		if one.at.Year() > 1 { // the zero time: it did not get that far
			v.Life = append(v.Life, momentView{one.name, one.at.UnixMilli()})
		}
	}
	return v
}

// reader returns whose stored output a visitor may read.
func (v *visitor) reader() artifact.Reader {
	return artifact.Reader{Principal: v.by.Principal, Repos: v.Repos, Owner: v.All}
}

// history answers with the jobs that have ended and whose output is stored.
func (s *Server) history(w http.ResponseWriter, r *http.Request, v *visitor) {
	var list []*artifact.Manifest
	err := s.turns.read(r, v, func(context.Context) (err error) {
		list, err = s.c.Outputs.List(v.reader(), maxHistory)
		return err
	})
	if err != nil {
		unread(w, err, http.StatusInternalServerError)
		return
	}
	views := make([]endedView, 0, len(list))
	for _, m := range list {
		views = append(views, endedOf(m))
	}
	writeJSON(w, map[string]any{"jobs": views})
}

// unread answers a request for what cannot be read, with a status if the error is none of those that say by themselves why.
func unread(w http.ResponseWriter, err error, status int) {
	switch {
	case errors.Is(err, errTurn):
		busy(w, err.Error())
	case errors.Is(err, artifact.ErrNotFound):
		fail(w, http.StatusNotFound, "no such output is stored")
	default:
		fail(w, status, err.Error())
	}
}

// stored answers with a job that has ended.
func (s *Server) stored(w http.ResponseWriter, r *http.Request, v *visitor) {
	var m *artifact.Manifest
	err := s.turns.read(r, v, func(ctx context.Context) (err error) {
		m, err = s.c.Outputs.Find(ctx, v.reader(), r.PathValue("handle"))
		return err
	})
	if err != nil {
		unread(w, err, http.StatusGone)
		return
	}
	writeJSON(w, storedOf(m))
}

// A lastBytes keeps the last maxOutput bytes of what is written to it, and up to as many before them.
type lastBytes struct {
	kept  []byte
	total int64
}

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.total += int64(len(p))
	end := p[max(0, len(p)-maxOutput):]
	if len(l.kept)+len(end) > 2*maxOutput {
		l.kept = append(l.kept[:0], l.kept[max(0, len(l.kept)-maxOutput):]...)
	}
	l.kept = append(l.kept, end...)
	return len(p), nil
}

// lines returns what is kept, from the beginning of a line if there is one, and how much before it is not.
func (l *lastBytes) lines() (shown string, left int64) {
	kept := string(l.kept[max(0, len(l.kept)-maxOutput):])
	if int64(len(kept)) < l.total {
		if _, rest, ok := strings.Cut(kept, "\n"); ok && rest != "" {
			kept = rest
		}
	}
	return kept, l.total - int64(len(kept))
}

// storedOutput answers with the end of a stream of a job that has ended.
func (s *Server) storedOutput(w http.ResponseWriter, r *http.Request, v *visitor) {
	stream := r.PathValue("stream")
	if stream != artifact.Stdout && stream != artifact.Stderr {
		fail(w, http.StatusNotFound, "must be stdout or stderr")
		return
	}
	var last lastBytes
	err := s.turns.read(r, v, func(ctx context.Context) error {
		return s.c.Outputs.Stream(ctx, v.reader(), r.PathValue("handle"), stream, &last)
	})
	if err != nil {
		unread(w, err, http.StatusGone)
		return
	}
	shown, left := last.lines()
	writeJSON(w, outputView{text.Lines(shown), left})
}
