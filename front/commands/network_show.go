package commands

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"corral/front/cli"
	"corral/internal/config"
	"corral/internal/nearest"
	"corral/internal/text"
	"corral/job"
	"corral/policy/network"
)

// A networkPlace is a repository, or all directories that users own.
type networkPlace struct {
	name  string
	rules *network.Rules // nil allows nothing
}

// places returns where jobs can be, or the one repository that the command line names.
func (o *networkOptions) places(c config.Config) (list []networkPlace, err error) {
	var known []string
	for _, r := range c.Repos {
		known = append(known, r.ID)
		if o.repo == "" || o.repo == r.ID {
			list = append(list, networkPlace{"repository " + text.Quote(r.ID), c.Rules(r)})
		}
	}
	if o.repo != "" && len(list) == 0 {
		err := fmt.Errorf("there is no repository %s", text.Quote(o.repo))
		if near := nearest.Of(o.repo, known); near != "" {
			err = fmt.Errorf("%w\nhint: did you mean %s?", err, text.Quote(near))
		}
		return nil, err
	}
	if o.repo == "" && c.ServesOwn(len(c.Repos)) {
		list = append(list, networkPlace{"directories that users own", c.Rules(config.Repo{})})
	}
	return list, nil
}

func (o *networkOptions) list() error {
	c, err := o.load()
	if err != nil {
		return err
	}
	places, err := o.places(c)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range places {
		b.WriteString(p.name + "\n")
		for _, line := range ruleLines(p.rules) {
			b.WriteString("  " + line + "\n")
		}
	}
	if len(places) == 0 {
		cli.Note("no repository is listed: corral repo add DIR")
	}
	return cli.Print(b.String())
}

// ruleLines returns rules, one a line.
func ruleLines(r *network.Rules) []string {
	if r == nil {
		return []string{"no host"}
	}
	var all []string
	add := func(key, value string) { all = append(all, fmt.Sprintf("%-7s  %s", key, value)) }
	for _, rule := range r.Allow {
		add("allow", rule.String())
	}
	for _, host := range r.Deny {
		add("deny", host)
	}
	for _, prefix := range r.Private {
		add("private", prefix.String())
	}
	for _, bound := range []struct {
		name  string
		bytes int64
	}{{"up", r.Bytes.Up}, {"down", r.Bytes.Down}} {
		if bound.bytes > 0 {
			add("bytes", bound.name+" "+job.FormatSize(bound.bytes))
		}
	}
	return all
}

// test says whether jobs may reach a host, in the repository of the options or in all of them if they name none. It drops root.
func (o *networkOptions) test(target string) error {
	c, err := o.load()
	if err != nil {
		return err
	}
	q, err := o.query(target)
	if err != nil {
		return err
	}
	places, err := o.places(c)
	if err != nil {
		return err
	}
	var b strings.Builder
	denied := len(places) == 0
	for _, p := range places {
		allowed, line, err := hostDecision(p.rules, q)
		if err != nil {
			return err
		}
		denied = denied || !allowed
		b.WriteString(p.name + ": " + line + "\n")
	}
	if len(places) == 0 {
		cli.Note("no repository is listed: corral repo add DIR")
	}
	if err := cli.Print(b.String()); err != nil || !denied {
		return err
	}
	return cli.Exit(1, nil)
}

// A hostQuery asks whether jobs may reach a host, at a port if port is not 0, and by a request if path is not "".
type hostQuery struct {
	name         string
	port         uint16
	method, path string
}

// query returns what a command line asks about.
func (o *networkOptions) query(target string) (q hostQuery, err error) {
	if !strings.HasPrefix(target, "https://") {
		if o.method != "" {
			return q, fmt.Errorf("--method is for a request: write https://%s/PATH", text.Line(target, 200))
		}
		q.name, q.port, err = network.ParseHost(target)
		return q, err
	}
	u, err := url.Parse(target)
	if err != nil || u.User != nil || u.Fragment != "" {
		return q, fmt.Errorf("%s is not a URL such as https://HOST/PATH", text.Quote(target))
	}
	host := u.Host
	if u.Port() == "" {
		host += ":443"
	}
	q.method, q.path = cmp.Or(o.method, "GET"), cmp.Or(u.Path, "/")
	q.name, q.port, err = network.ParseHost(host)
	return q, errors.Join(err, network.CheckMethod(q.method))
}

// request says what rules decide about a request that is not passed on unread.
func (q hostQuery) request(set *network.Set, rule string) (allowed bool, line string) {
	d := set.Request(q.name, q.port, q.method, q.path)
	switch {
	case !d.Allowed:
		return false, "denied: " + d.Why
	case d.Secret != "":
		return true, "allowed, with the secret " + d.Secret + " in place of the placeholder"
	}
	return true, "allowed by " + rule
}

// hostDecision says what rules decide.
func hostDecision(r *network.Rules, q hostQuery) (allowed bool, line string, err error) {
	set, err := network.Compile(r)
	if err != nil {
		return false, "", err
	}
	name, port := q.name, q.port
	d := set.Name(name)
	if port != 0 {
		d = set.Decide(name, port)
	}
	if !d.Allowed {
		line = "denied: " + d.Why
		if d.Allow != "" {
			line += "; to allow it, add to network.allow: " + d.Allow
		}
		return false, line, nil
	}
	if q.path != "" && d.Protocol == network.HTTPS {
		allowed, line = q.request(set, d.Rule)
		return allowed, line, nil
	}
	ports := set.Ports(name)
	if port != 0 {
		ports = slices.DeleteFunc(ports, func(p network.Port) bool { return p.Number != port })
	}
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = strconv.Itoa(int(p.Number)) + " (" + p.Protocol + ")"
	}
	return true, "allowed by " + d.Rule + ": port " + strings.Join(words, ", "), nil
}
