package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corral/store/audit/reader"
	"corral/store/audit/search"
)

const (
	// maxRecords is the maximum number of records of an answer, the newest.
	maxRecords = 200
	// maxSearched is how much of the end of the audit log is searched, in bytes.
	maxSearched = 64 << 20
)

// A recordView is a record of the audit log in the answers. Its texts are safe to show.
type recordView struct {
	Seq     uint64 `json:"seq"`
	At      int64  `json:"atMs"` // since 1970
	Event   string `json:"event"`
	Job     string `json:"job"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"` // as corral audit prints it
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
	found := []search.Found{}
	for l, err := range lines {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, false, err
		}
		for _, one := range selected(f, l) {
			if len(word) > 0 && !bytes.Contains(bytes.ToLower(one.Text), word) {
				continue
			}
			one.Text = nil
			if found = append(found, one); len(found) == 2*maxRecords { // not at each record: the others are moved
				found = append(found[:0], found[maxRecords:]...)
			}
		}
	}
	list = []recordView{}
	for n := len(found) - 1; n >= max(0, len(found)-maxRecords); n-- {
		x := found[n].Record
		list = append(list, recordView{
			x.Seq, x.Time.UnixMilli(), shown(string(x.Event), maxName), shown(x.Job, maxName),
			shown(search.Outcome(x), maxName), shown(search.Format(x), maxLine),
		})
	}
	return list, whole, nil
}

// selected returns the records that are selected once a line was read. A damaged line is skipped: finding damage is the task of corral
// audit verify.
func selected(f *search.Filter, l *reader.Line) []search.Found {
	x, err := l.Record()
	if err != nil {
		return nil
	}
	return f.Add(x, l.Text)
}

// maxField is the maximum length of a field of a query, in bytes.
const maxField = 4 << 10

// filterOf returns the filter of a query.
func filterOf(q url.Values, now time.Time) (*search.Filter, error) {
	for name, values := range q {
		if len(values) != 1 || len(values[0]) > maxField {
			return nil, errors.New(shown(name, maxName) + ": must have one value of at most 4 KiB")
		}
	}
	f := &search.Filter{
		User: q.Get("user"), Repo: q.Get("repo"), Principal: q.Get("principal"), Tool: q.Get("tool"), Request: q.Get("request"),
	}
	if o := q.Get("outcome"); o != "" {
		f.Outcomes = []string{o}
	}
	if err := search.CheckOutcomes(f.Outcomes); err != nil {
		return nil, err
	}
	for name, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if q.Get(name) == "" {
			continue
		}
		var err error
		if *t, err = search.ParseTime(q.Get(name), now); err != nil {
			return nil, errors.New(name + ": " + err.Error())
		}
	}
	return f, f.Prepare()
}
