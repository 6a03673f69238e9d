package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corral/internal/users"
	"corral/store/audit"
)

const (
	// maxRecords is the maximum number of records of an answer, the newest.
	maxRecords = 200
	// maxSearched is how much of the end of the audit log is searched, in bytes.
	maxSearched = 64 << 20
)

// A recordView is a record of the audit log in the answers. Its texts are safe to show.
type recordView struct {
	Seq       uint64 `json:"seq"`
	At        int64  `json:"atMs"` // since 1970
	Event     string `json:"event"`
	Job       string `json:"id"`
	Outcome   string `json:"outcome"`
	User      string `json:"user"` // name or number; "" in a record about no request
	Principal string `json:"principal"`
	Repo      string `json:"repo"`
	Tool      string `json:"tool"`
	Runtime   string `json:"runtime"`
	Command   string `json:"command"` // if the log has it
	Result    string `json:"result"`  // how a job ended, or why it was not started
	Took      int64  `json:"tookMs"`  // -1: the record does not say
	Text      string `json:"text"`    // as corral audit prints it
}

// columns returns a record in columns. first is the first record of the same job, which says what the last one does not repeat, or the
// record itself.
func columns(r, first *audit.Record, names *users.Names) recordView {
	v := recordView{
		Seq: r.Seq, At: r.Time.UnixMilli(), Event: shown(string(r.Event), maxName), Job: shown(r.Job, maxName),
		Outcome: shown(audit.Outcome(r), maxName), Principal: shown(first.Claimed["principal"], maxName),
		Repo: shown(cmp.Or(first.RepoPath(), first.Claimed["repo"]), maxName), Tool: shown(first.Claimed["tool"], maxName),
		Runtime: shown(first.Claimed["runtime"], maxName), Command: shown(first.Claimed["argv"], maxName), Took: -1,
		Text: shown(audit.Format(r), maxLine),
	}
	if peer := cmp.Or(r.Account, first.Account, r.Peer, first.Peer); peer != nil {
		v.User = shown(names.Of(*peer), maxName)
	}
	if wall, ok := r.Usage["wall_ns"]; ok {
		v.Took = wall / 1e6
	}
	result := cmp.Or(r.Message, r.Claimed["reason"])
	switch {
	case r.Count > 0:
		result = fmt.Sprintf("%d more requests, without records of their own", r.Count)
	case r.Limit != "":
		result = "limit: " + r.Limit
	case r.Signal != 0:
		result = fmt.Sprintf("signal %d", r.Signal)
	case r.Event == audit.Finished && r.Step == "":
		result = fmt.Sprintf("exit %d", r.Exit)
	}
	v.Result = shown(result, maxName)
	return v
}

// A queryError is the error of a query that cannot be answered.
type queryError struct{ error }

// audit answers with the newest records that a query selects.
func (s *Server) audit(w http.ResponseWriter, r *http.Request, v *visitor) {
	switch {
	case !v.All:
		fail(w, http.StatusForbidden, "the audit log is for operators: it has the jobs of all users")
		return
	case s.c.Audit == nil:
		fail(w, http.StatusNotFound, "this server may not read the audit log: its user must be in the group of the log's directory")
		return
	}
	var list []recordView
	var whole bool
	err := s.turns.read(r, v, func(ctx context.Context) (err error) {
		list, whole, err = s.search(ctx, r.URL.Query())
		return err
	})
	var query queryError
	switch {
	case errors.As(err, &query):
		fail(w, http.StatusBadRequest, err.Error())
	case err != nil:
		unread(w, err, http.StatusBadGateway)
	default:
		writeJSON(w, map[string]any{"records": list, "whole": whole})
	}
}

// search returns the newest records that a query selects, the last first. whole reports whether all of the log was searched.
func (s *Server) search(ctx context.Context, q url.Values) (list []recordView, whole bool, err error) {
	f, err := filterOf(q, s.c.Now())
	if err != nil {
		return nil, false, queryError{err}
	}
	log, err := s.c.Audit()
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	lines, whole := log.LastLines(maxSearched)
	word := []byte(strings.ToLower(q.Get("text")))
	found := []selection{}
	first := map[uint64]*audit.Record{} // of jobs that have not ended, by number: as many as run at once
	for l, err := range lines {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, false, err
		}
		x, err := l.Record()
		if err != nil { // finding damage is the task of corral audit verify
			continue
		}
		begun := cmp.Or(first[x.Of], x)
		delete(first, x.Of)
		if x.Event == audit.Decided {
			first[x.Seq] = x
		}
		for _, one := range f.Add(x, l.Text) {
			if len(word) > 0 && !bytes.Contains(bytes.ToLower(one.Text), word) {
				continue
			}
			if found = append(found, selection{one.Record, begun}); len(found) == 2*maxRecords { // not at each record: the others are moved
				found = append(found[:0], found[maxRecords:]...)
			}
		}
	}
	list = []recordView{}
	var names users.Names
	for n := len(found) - 1; n >= max(0, len(found)-maxRecords); n-- {
		list = append(list, columns(found[n].record, found[n].first, &names))
	}
	return list, whole, nil
}

// A selection is a record that was selected, with the first record of its job, or itself.
type selection struct{ record, first *audit.Record }

// maxField is the maximum length of a field of a query, in bytes.
const maxField = 4 << 10

// filterOf returns the filter of a query.
func filterOf(q url.Values, now time.Time) (*audit.Filter, error) {
	for name, values := range q {
		if len(values) != 1 || len(values[0]) > maxField {
			return nil, errors.New(shown(name, maxName) + ": must have one value of at most 4 KiB")
		}
	}
	f := &audit.Filter{
		User: q.Get("user"), Repo: q.Get("repo"), Principal: q.Get("principal"), Tool: q.Get("tool"), Request: q.Get("request"),
	}
	if o := q.Get("outcome"); o != "" {
		f.Outcomes = []string{o}
	}
	if err := audit.CheckOutcomes(f.Outcomes); err != nil {
		return nil, err
	}
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if q.Get(name) == "" {
			continue
		}
		var err error
		if *t, err = audit.ParseTime(q.Get(name), now); err != nil {
			return nil, errors.New(name + ": " + err.Error())
		}
	}
	return f, f.Prepare()
}
