package config

import (
	"slices"
	"strings"

	"corral/internal/config/strict"
	"corral/policy/network"
)

// SecretVariable is the environment variable in which every job finds the placeholder, if a rule has a secret for it.
const SecretVariable = "CORRAL_SECRET"

// BodyAllow is the Secret.Body that has a request passed on with the placeholder in its body.
const BodyAllow = "allow"

// HeaderOf returns Header with its default.
func (s Secret) HeaderOf() string {
	if s.Header == "" {
		return "Authorization"
	}
	return s.Header
}

// FormatOf returns Format with its default.
func (s Secret) FormatOf() string {
	if s.Format == "" {
		return "Bearer {}"
	}
	return s.Format
}

// headerName returns whether s is the name of a header in which a credential can be (RFC 9110, section 5.6.2). Others belong to the
// connection or to the request itself.
func headerName(s string) bool {
	const letters = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	reserved := []string{
		"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "proxy-authorization", "content-type",
		"content-encoding", "accept-encoding", "keep-alive", "proxy-connection",
	}
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == "" && !slices.Contains(reserved, strings.ToLower(s))
}

// secretFormat returns whether s is the value of a header with a place for the secret.
func secretFormat(s string) bool {
	printable := !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
	return printable && len(s) <= 256 && strings.Count(s, "{}") == 1 && strings.TrimSpace(s) == s
}

// checkSecrets checks the secrets of a file: what the forms of their keys do not say.
func (l *loader) checkSecrets(set strict.Node) {
	for name, secret := range l.Secrets {
		at := set.At(name)
		if !at.IsMapping() {
			continue
		}
		sources := 0
		for _, key := range []string{"file", "credential", "command"} {
			if at.At(key).Present() {
				sources++
			}
		}
		if sources != 1 {
			at.Failf("secret %q: must have one of `file`, `credential` and `command`", name)
		}
		if len(secret.Command) > 0 {
			if _, err := pathForm.Parse(secret.Command[0], ""); err != nil {
				at.At("command").Failf("`command`: the program must be an absolute path, got %s", strict.Shown(secret.Command[0]))
			}
		}
	}
}

// checkSecretsOf checks that the secrets of rules exist.
func (l *loader) checkSecretsOf(set strict.Node, rules *network.Rules) {
	var known []string
	for name := range l.Secrets {
		known = append(known, name)
	}
	slices.Sort(known)
	for i, item := range set.At("allow").Items() {
		if i < len(rules.Allow) && rules.Allow[i].Secret != "" && !slices.Contains(known, rules.Allow[i].Secret) {
			unknownSecret(item.At("secret"), rules.Allow[i].Secret, known)
		}
	}
}

func unknownSecret(at strict.Node, name string, known []string) {
	if len(known) == 0 {
		at.Failf("unknown secret `%s`: the file has no `secrets`", name)
		return
	}
	at.Unknown("secret", name, known)
}
