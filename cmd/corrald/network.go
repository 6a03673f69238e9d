package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"corral/egress/control"
	"corral/internal/config"
	"corral/isolate/admit"
	"corral/policy/network"
)

// maxSecrets bounds the secrets of one repository's rules in bytes, with their names, headers and formats: a message to corral-egress
// has them beside the rules.
const maxSecrets = 8 << 10

// maxVariables bounds the variables of a job that have the placeholder, in bytes: they are part of what corral sets for a job, which is at
// most inside.MaxEnv. Otherwise no job of the repository could begin. placeholder is the size of a value, with what is before and after it.
const (
	maxVariables = 6 << 10
	placeholder  = 40
)

// networks returns what jobs may reach. It reads each secret once.
type networks struct {
	config config.Config
	read   map[string]control.Secret // by name
}

func newNetworks(c config.Config) *networks { return &networks{c, map[string]control.Secret{}} }

// of returns what the jobs of a repository may reach, nil for nothing, and what their requests need.
func (n *networks) of(r config.Repo) (json.RawMessage, *admit.Requests, error) {
	rules := n.config.Rules(r)
	if rules == nil {
		return nil, nil, nil
	}
	encoded, err := network.Encode(rules)
	if err != nil || !rules.Inspects() {
		return encoded, nil, err
	}
	requests := new(admit.Requests)
	if rules.Registries() {
		requests.Keep = n.config.NetworkCache.Size
	}
	size, variables := 0, 0
	for _, name := range rules.Secrets() {
		s, err := n.secret(name)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %q: %w", name, err)
		}
		if size += len(s.Name) + len(s.Header) + len(s.Format) + len(s.Value); size > maxSecrets {
			return nil, nil, fmt.Errorf("the secrets of the rules for %q have more than %d bytes: use fewer in one repository", r.Path, maxSecrets)
		}
		requests.Secrets = append(requests.Secrets, s)
		for _, variable := range append([]string{config.SecretVariable}, n.config.Secrets[name].Env...) {
			if !slices.Contains(requests.Variables, variable) {
				requests.Variables = append(requests.Variables, variable)
				variables += len(variable) + placeholder
			}
		}
		if variables > maxVariables {
			return nil, nil, fmt.Errorf("the variables for the secrets of the rules for %q take more than %d bytes: use fewer or shorter ones in env",
				r.Path, maxVariables)
		}
	}
	return encoded, requests, nil
}

// keyDescriptor is where root's front-end passes the key of an API.
const keyDescriptor = 4

// keyName begins the name of the secret that is the key.
const keyName = "key-of-"

// useKey reads the key of a preset's API, closes f, and has requests to the API, which jobs may reach by it, carry the key. Agents repeat
// what their commands print, so bodies may have the placeholder.
func (n *networks) useKey(preset string, f *os.File) error {
	defer f.Close()
	p, known := network.PresetNamed(preset)
	if !known || p.Key == nil {
		return fmt.Errorf("%q is not the preset of an API with a key", preset)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+3))
	value, err := secretSource{File: "the key"}.clean(b, err)
	if err != nil {
		return err
	}
	name := keyName + preset
	if _, taken := n.config.Secrets[name]; taken {
		return fmt.Errorf("the configuration has a secret %q, which is the name of the key: rename it", name)
	}
	n.read[name] = control.Secret{Name: name, Header: p.Key.Header, Format: p.Key.Format, Value: value, Body: true}
	n.config.Secrets = maps.Clone(n.config.Secrets)
	if n.config.Secrets == nil {
		n.config.Secrets = map[string]config.Secret{}
	}
	n.config.Secrets[name] = config.Secret{Env: []string{p.Key.Variable}}
	allow := p.Keyed(name)
	for _, r := range n.config.Network.Allow {
		if r.Preset != preset {
			allow = append(allow, r)
		}
	}
	n.config.Network.Allow = allow
	return nil
}

func (n *networks) secret(name string) (control.Secret, error) {
	if s, known := n.read[name]; known {
		return s, nil
	}
	c := n.config.Secrets[name]
	value, err := secretSource{File: c.File, Credential: c.Credential, Command: c.Command}.Read()
	if err != nil {
		return control.Secret{}, err
	}
	s := control.Secret{Name: name, Header: c.HeaderOf(), Format: c.FormatOf(), Value: value, Body: c.Body == config.BodyAllow}
	n.read[name] = s
	return s, nil
}
