package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"corral/internal/config/strict"
	"corral/internal/text"
	"corral/policy/ask"
	"corral/policy/network"
)

// Rules returns which hosts the jobs of a repository may reach, which need not be one of the configuration's. The result is nil
// if they reach none.
func (c Config) Rules(r Repo) *network.Rules {
	rules := &c.Network
	if r.Network != nil {
		rules = r.Network
	}
	if len(rules.Allow) == 0 {
		return nil
	}
	return rules
}

// Exposed returns, a sentence each, which services of this host or its cloud the rules of the configuration let jobs reach. An operator
// may mean it, so it is no mistake.
func (c Config) Exposed() (list []string) {
	add := func(where string, rules *network.Rules) {
		for _, p := range rules.Exposed() {
			list = append(list, fmt.Sprintf("network.private%s has %s: jobs reach services of this host, or of its cloud, by names that lead there", where, p))
		}
	}
	add("", &c.Network)
	for _, r := range c.Repos {
		if r.Network != nil {
			add(" of "+text.Quote(r.Path), r.Network)
		}
	}
	return list
}

// networkForm is the form of what jobs may reach, see package ask.
var networkForm = strict.Form{
	What: "presets and hosts such as npm example.org:443, separated by blanks, or none",
	Parse: func(s, _ string) (any, error) {
		words, err := ask.Parse(s)
		switch {
		case err != nil:
			return nil, strict.Mistake(err.Error())
		case words == "":
			return nil, errors.New("empty")
		}
		return words, nil
	},
	Write: func(v any) string { return strict.Quote(v.(string)) },
}

// hostPatternForm is the form of HOST or *.HOST.
var hostPatternForm = checkedForm("HOST or *.HOST such as example.org", network.CheckHost)

// checkedForm is the form of a text that check returns no error for.
func checkedForm(what string, check func(string) error) strict.Form {
	return strict.Form{
		What: what,
		Parse: func(s, _ string) (any, error) {
			if err := check(s); err != nil {
				return nil, strict.Mistake(err.Error())
			}
			return s, nil
		},
		Write: func(v any) string { return strict.Quote(v.(string)) },
	}
}

// privateForm is the form of a network without public addresses.
var privateForm = strict.Form{
	What: "a network such as 10.1.0.0/16", Tags: []string{"!!str"},
	Parse: func(s, _ string) (any, error) {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, errors.New("not a network")
		}
		if err := network.CheckPrivate(prefix); err != nil {
			return nil, strict.Mistake(err.Error())
		}
		return prefix, nil
	},
	Write: func(v any) string { return strict.Quote(v.(netip.Prefix).String()) },
}

// ageForm is the form of how long ago a version was published.
var ageForm = strict.Number("a time such as 7d", []string{"!!str"}, func(s string) (int64, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16) // 179 years
		return int64(n) * int64(24*time.Hour), err
	}
	return parseTime(s)
}, func(n int64) string { return network.FormatAge(time.Duration(n)) })

// checkNetwork checks rules that were decoded from set: what their forms do not say.
func (l *loader) checkNetwork(set strict.Node, rules *network.Rules) {
	l.later = append(l.later, func() { l.checkSecretsOf(set, rules) })
	right := true
	for i, item := range set.At("allow").Items() {
		if i >= len(rules.Allow) || !decoded(item, rules.Allow[i]) {
			right = false
			continue
		}
		if err := rules.Allow[i].Check(); err != nil {
			item.Failf("`allow`: %v", err)
			right = false
		}
	}
	if !right {
		return
	}
	if _, err := network.Encode(rules); err != nil {
		set.Failf("`network`: %v", err)
	}
}

// decoded returns whether the keys of a rule had no mistake: those that have one are reported already, and have no value.
func decoded(item strict.Node, r network.Rule) bool {
	for key, zero := range map[string]bool{
		"preset": r.Preset == "", "host": r.Host == "", "protocol": r.Protocol == "", "ports": len(r.Ports) < len(item.At("ports").Items()),
		"methods": len(r.Methods) < len(item.At("methods").Items()), "paths": len(r.Paths) < len(item.At("paths").Items()),
		"headers": len(r.Headers) < len(item.At("headers").Items()),
		"secret":  r.Secret == "", "registry": r.Registry == "", "min_age": r.MinAge == 0,
	} {
		if item.At(key).Present() && zero {
			return false
		}
	}
	return item.IsMapping()
}
