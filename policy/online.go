package policy

import (
	"strings"

	"corral/policy/network"
)

// registries are the hosts from which package managers install, with the variables that keep a manager from asking them: those of
// base, and those of a cache that it could not write to.
var registries = []struct {
	host    string
	offline []string
}{
	{"registry.npmjs.org", []string{"npm_config_fetch_retries", "npm_config_cache", "npm_config_prefer_offline", "npm_config_logs_max"}},
	{"pypi.org", []string{"PIP_NO_INDEX"}},
	{"index.crates.io", []string{"CARGO_NET_OFFLINE", "CARGO_HOME", "CARGO_INSTALL_ROOT"}},
	{"sum.golang.org", []string{"GOSUMDB"}},
}

// goProxy is the host from which go downloads modules.
const goProxy = "proxy.golang.org"

// online removes from the environment e what keeps package managers from registries that a job may reach: what it asks for of the
// operator's hosts, nil for none. What is in go's cache is still taken from there: go writes nothing to it.
func online(e map[string]string, hosts *network.Set, asked string) {
	if hosts == nil {
		return
	}
	hosts, err := hosts.Narrow(asked)
	if err != nil {
		return // the job will be refused
	}
	for _, r := range registries {
		if hosts.Name(r.host).Allowed {
			for _, name := range r.offline {
				delete(e, name)
			}
		}
	}
	if hosts.Name(goProxy).Allowed { // no modules from elsewhere: their hosts are not those of the preset
		e["GOPROXY"] = strings.TrimSuffix(e["GOPROXY"], "off") + "https://" + goProxy
	}
}
