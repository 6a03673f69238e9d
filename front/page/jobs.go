package page

import (
	"context"
	"errors"
	"net/http"
	"time"

	"corral/front/supervisor"
	"corral/internal/text"
	"corral/isolate/wire"
	"corral/job"
)

// maxJobs is the maximum number of running jobs of a page, the newest.
const maxJobs = 256

// snapshotPatience is how long the supervisor may take to list jobs.
const snapshotPatience = 5 * time.Second

// A jobView is a running job in the answers. Its texts are safe to show. -1 is unknown.
type jobView struct {
	ID        string `json:"id"`
	Handle    string `json:"handle"` // of its output; "" if that is not stored
	Repo      string `json:"repo"`
	Tool      string `json:"tool"`
	Runtime   string `json:"runtime"`
	Command   string `json:"command"` // "" is unknown
	Principal string `json:"principal"`
	UID       uint32 `json:"uid"`
	Started   int64  `json:"startedMs"` // since 1970
	CPU       int64  `json:"cpuMs"`
	Memory    int64  `json:"memoryBytes"`
	Peak      int64  `json:"peakMemoryBytes"`
}

// viewOf returns a job with at most limit bytes of its command.
func viewOf(e *wire.Entry, limit int) jobView {
	return jobView{
		ID: shown(e.Job, maxName), Handle: shown(e.Artifact, maxName), Repo: shown(e.Repo, maxName), Tool: shown(e.Tool, maxName),
		Runtime: shown(e.Runtime, maxName), Command: shown(e.Command, limit), Principal: shown(e.Principal, maxName), UID: e.UID,
		Started: e.Started / int64(time.Millisecond), CPU: milliseconds(time.Duration(e.CPU)), Memory: e.MemoryNow, Peak: e.Memory,
	}
}

func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// A sampleView is a sample in the answers.
type sampleView struct {
	At     int64 `json:"atMs"`
	CPU    int64 `json:"cpuMs"`
	Memory int64 `json:"memoryBytes"`
}

func samplesOf(list []job.Sample) []sampleView {
	views := make([]sampleView, 0, len(list))
	for _, s := range list {
		views = append(views, sampleView{s.At.Milliseconds(), milliseconds(s.CPU), s.Memory})
	}
	return views
}

// sees reports whether a visitor may see a running job: an operator each, others those that their principal started. The supervisor
// lists jobs of the server's user alone, and what it lists as their principal is what the server said.
func (v *visitor) sees(e *wire.Entry) bool { return v.All || e.Principal == v.by.Principal }

// A jobsView is the event "jobs".
type jobsView struct {
	At    int64     `json:"atMs"`
	Jobs  []jobView `json:"jobs"`
	More  int       `json:"more"` // jobs that are left out
	Error string    `json:"error,omitempty"`
	// Samples are those of the jobs until now, by id. Only the first event of a stream has them: the page adds what the next ones say.
	Samples map[string][]sampleView `json:"samples,omitempty"`
}

// jobsOf returns what a visitor sees of a snapshot, the job that started last first.
func jobsOf(n supervisor.Snapshot, v *visitor) jobsView {
	view := jobsView{At: n.At.UnixMilli(), Jobs: []jobView{}}
	if n.Err != nil {
		view.Error = text.Lines(n.Err.Error())
	}
	for i := len(n.Jobs) - 1; i >= 0; i-- {
		switch e := &n.Jobs[i]; {
		case !v.sees(e):
		case len(view.Jobs) == maxJobs:
			view.More++
		default:
			view.Jobs = append(view.Jobs, viewOf(e, maxName))
		}
	}
	return view
}

// events sends the running jobs whenever the supervisor was asked.
func (s *Server) events(st *stream, _ *http.Request, v *visitor) {
	w := s.c.Samples.Watch()
	defer w.Close()
	for first := true; st.wait(w.News); first = false {
		view := jobsOf(w.Take(), v)
		if first {
			view.Samples = map[string][]sampleView{}
			for _, j := range view.Jobs {
				view.Samples[j.ID] = samplesOf(s.c.Samples.Of(j.ID))
			}
		}
		if st.send("jobs", view) != nil {
			return
		}
	}
}

// errEnded is returned for a job that does not run, or that the visitor may not see: the two look the same.
var errEnded = errors.New("no such job runs")

// find returns a running job that a visitor may see.
func (s *Server) find(ctx context.Context, v *visitor, id string) (*wire.Entry, error) {
	w := s.c.Samples.Watch()
	defer w.Close()
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	select {
	case <-w.News:
	case <-ctx.Done():
		return nil, errors.New("the supervisor does not answer")
	}
	n := w.Take()
	if n.Err != nil {
		return nil, n.Err
	}
	for i := range n.Jobs {
		if e := &n.Jobs[i]; e.Job == id && v.sees(e) {
			return e, nil
		}
	}
	return nil, errEnded
}

// failed answers a request about a running job that find did not find.
func failed(w http.ResponseWriter, err error) {
	if errors.Is(err, errEnded) {
		fail(w, http.StatusNotFound, err.Error())
		return
	}
	fail(w, http.StatusBadGateway, err.Error())
}

// job answers with a running job and its samples.
func (s *Server) job(w http.ResponseWriter, r *http.Request, v *visitor) {
	e, err := s.find(r.Context(), v, r.PathValue("job"))
	if err != nil {
		failed(w, err)
		return
	}
	writeJSON(w, map[string]any{"job": viewOf(e, maxLine), "samples": samplesOf(s.c.Samples.Of(e.Job))})
}

// end ends a running job, as corral kill does. The supervisor checks that it is one of the server's user, too.
func (s *Server) end(w http.ResponseWriter, r *http.Request, v *visitor) {
	e, err := s.find(r.Context(), v, r.PathValue("job"))
	if err == nil {
		err = s.c.Kill(e.Job)
	}
	if err != nil {
		failed(w, err)
		return
	}
	s.c.Log.InfoContext(r.Context(), "a job was ended from the page", "job", e.Job, "principal", v.by.Principal)
	done(w)
}

// maxSessions is the maximum number of sessions of an answer, those that were opened last.
const maxSessions = 200

// A sessionView is a session, or the layer that one left, in the answers. Its texts are safe to show.
type sessionView struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Repo      string `json:"repo"`
	Workspace string `json:"workspace"`
	Kept      bool   `json:"kept"` // it has ended, and its changes are kept
	Jobs      int    `json:"jobs"`
	Disk      int64  `json:"diskBytes"`
	DiskUsed  int64  `json:"diskUsedBytes"`
	Opened    int64  `json:"openedMs"` // since 1970
	Used      int64  `json:"usedMs"`
}

// sessions answers with the sessions that a visitor may see: an operator all of the server's user, others their own.
func (s *Server) sessions(w http.ResponseWriter, r *http.Request, v *visitor) {
	list, err := s.c.Sessions(r.Context())
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	views := []sessionView{}
	for n := len(list) - 1; n >= 0 && len(views) < maxSessions; n-- {
		one := &list[n]
		if !v.All && !s.c.Owns(v.by.Principal, one.ID) {
			continue
		}
		views = append(views, sessionView{
			shown(one.ID, maxName), shown(one.Name, maxName), shown(one.Repo, maxName), one.Workspace.String(), one.Kept, one.Jobs, one.Disk,
			one.DiskUsed, one.Opened.UnixMilli(), one.Used.UnixMilli(),
		})
	}
	writeJSON(w, map[string]any{"sessions": views})
}

// A denialView is a request that was denied or refused in the answers. Its texts are safe to show.
type denialView struct {
	At        int64  `json:"atMs"` // since 1970
	ID        string `json:"id"`   // of the job; "" if a front-end denied the request
	Repo      string `json:"repo"`
	Tool      string `json:"tool"`
	Runtime   string `json:"runtime"`
	Principal string `json:"principal"`
	UID       uint32 `json:"uid"`
	Request   string `json:"request"`
	Reason    string `json:"reason"`
}

// denied answers with the requests that were denied or refused lately, the last first: to an operator those of the server's user, to others
// their own.
func (s *Server) denied(w http.ResponseWriter, _ *http.Request, v *visitor) {
	list, err := s.c.Denials()
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	views := []denialView{}
	for n := len(list) - 1; n >= 0; n-- {
		if d := &list[n]; v.All || d.Principal == v.by.Principal {
			views = append(views, denialView{
				d.At / 1e6, shown(d.Job, maxName), shown(d.Repo, maxName), shown(d.Tool, maxName), shown(d.Runtime, maxName),
				shown(d.Principal, maxName), d.UID, shown(d.Request, maxName), text.Escape(d.Reason),
			})
		}
	}
	writeJSON(w, map[string]any{"denied": views})
}
