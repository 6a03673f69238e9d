package audit

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"corral/egress/control"
	"corral/job"
)

// defaultInstance is the instance whose jobs are shown without its name.
const defaultInstance = "main"

// Format returns a record as one line. What a front-end claims stands last, and is quoted if it could be mistaken
// for something else.
func Format(r *Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %s %s", r.Time.Local().Format("2006-01-02 15:04:05.000"), r.Seq, r.Event, cmp.Or(r.Job, r.Instance))
	word := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%s", name, Shown(value))
		}
	}
	count := func(name string, n uint64) {
		if n != 0 {
			word(name, strconv.FormatUint(n, 10))
		}
	}
	if r.Job != "" && r.Instance != defaultInstance {
		word("instance", r.Instance)
	}
	if r.Peer != nil {
		word("uid", strconv.FormatUint(uint64(*r.Peer), 10))
	}
	if r.Account != nil {
		word("account", strconv.FormatUint(uint64(*r.Account), 10))
	}
	word("repo", r.RepoPath())
	word("status", r.Status)
	switch {
	case r.Signal != 0:
		count("signal", uint64(r.Signal))
	case r.Event == Finished && r.Step == "":
		word("exit", strconv.Itoa(r.Exit))
	}
	word("limit", r.Limit)
	if ns, ok := r.Usage["wall_ns"]; ok {
		word("wall", time.Duration(ns).Round(time.Microsecond).String())
	}
	word("reached", reachedText(r.Reached))
	word("step", r.Step)
	word("message", r.Message)
	count("of", r.Of)
	count("count", r.Count)
	word("next", r.Next)
	if r.Event == Repaired {
		word("cut_bytes", strconv.FormatInt(r.CutBytes, 10))
		count("missing", r.Missing)
		word("saved", r.Saved)
	}
	for _, name := range []string{
		"tool", "principal", "session", "request", "repo", "runtime", "artifact", "reason", "network", "argv",
		"source",
	} {
		word("claimed."+name, r.Claimed[name])
	}
	return b.String()
}

// reached returns what corral-egress said of a job's network access in words. A text that was cut, or that corral-egress did not
// write, is returned as it is.
func reachedText(text string) string {
	s, err := control.ReadSummary(text)
	if text == "" || err != nil {
		return text
	}
	said := fmt.Sprintf("%d connections, %d bytes up, %d down, %d denied", s.Connections, s.BytesUp, s.BytesDown, s.Denied)
	var hosts []string
	for _, d := range s.Denials {
		host := job.NetworkDenial{Name: d.Name, Port: int(d.Port)}
		hosts = append(hosts, host.Host())
	}
	if len(hosts) > 0 {
		said += ": " + strings.Join(hosts, ", ")
	}
	if s.Lost {
		said += "; more is not known"
	}
	return said
}

// Shown quotes a text that is not one printable word.
func Shown(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '=' || r == unicode.ReplacementChar
	}) {
		return strconv.Quote(s)
	}
	return s
}
