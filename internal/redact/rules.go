package redact

import "bytes"

// Names of placeholders, as in [REDACTED:aws-key].
const (
	nameAWS    = "aws-key"
	nameGitHub = "github-token"
	nameSecret = "secret"
)

// patternRules returns the table of secrets to hide. Of the rules that match at one position the first applies.
//
// The formats are those documented by the issuers; prefix, length and alphabet distinguish them from ordinary output.
// Only the last rows depend on the names of secrets.
func patternRules() []*rule {
	rules := []*rule{
		{prefix: "AKIA", name: nameAWS, match: run(&upperDigit, 16, 32)},
		{prefix: "ASIA", name: nameAWS, match: run(&upperDigit, 16, 32)},
		{prefix: "ghp_", name: nameGitHub, match: run(&alnum, 36, 255)},
		{prefix: "gho_", name: nameGitHub, match: run(&alnum, 36, 255)},
		{prefix: "ghu_", name: nameGitHub, match: run(&alnum, 36, 255)},
		{prefix: "ghs_", name: nameGitHub, match: run(&alnum, 36, 255)},
		{prefix: "ghr_", name: nameGitHub, match: run(&alnum, 36, 255)},
		{prefix: "github_pat_", name: nameGitHub, match: run(&word, 22, 255)},
		{prefix: "glpat-", name: nameSecret, match: run(&urlSafe, 20, 255)},      // GitLab
		{prefix: "xoxb-", name: nameSecret, match: run(&slack, 20, 255)},         // Slack: bot,
		{prefix: "xoxp-", name: nameSecret, match: run(&slack, 20, 255)},         // user,
		{prefix: "xoxa-", name: nameSecret, match: run(&slack, 20, 255)},         // workspace,
		{prefix: "xoxr-", name: nameSecret, match: run(&slack, 20, 255)},         // refresh,
		{prefix: "xoxs-", name: nameSecret, match: run(&slack, 20, 255)},         // session,
		{prefix: "xoxe-", name: nameSecret, match: run(&slack, 20, 255)},         // rotated,
		{prefix: "xapp-", name: nameSecret, match: run(&slack, 20, 255)},         // application
		{prefix: "AIza", name: nameSecret, match: run(&urlSafe, 35, 35)},         // Google: key,
		{prefix: "GOCSPX-", name: nameSecret, match: run(&urlSafe, 20, 255)},     // client,
		{prefix: "ya29.", name: nameSecret, match: run(&urlSafe, 20, unbounded)}, // access
		{prefix: "sk-ant-", name: nameSecret, match: run(&urlSafe, 20, 255)},     // Anthropic
		{prefix: "sk-proj-", name: nameSecret, match: run(&urlSafe, 20, 255)},    // OpenAI: project,
		{prefix: "sk-svcacct-", name: nameSecret, match: run(&urlSafe, 20, 255)}, // service,
		{prefix: "sk-admin-", name: nameSecret, match: run(&urlSafe, 20, 255)},   // administrator,
		{prefix: "sk-or-", name: nameSecret, match: run(&urlSafe, 20, 255)},      // OpenRouter
		{prefix: "sk-", name: nameSecret, match: run(&alnum, 32, 255)},           // older form
		{prefix: "sk_live_", name: nameSecret, match: run(&alnum, 16, 255)},      // Stripe
		{prefix: "rk_live_", name: nameSecret, match: run(&alnum, 16, 255)},      //
		{prefix: "sk_test_", name: nameSecret, match: run(&alnum, 16, 255)},      //
		{prefix: "npm_", name: nameSecret, match: run(&alnum, 36, 255)},          // npm
		{prefix: "pypi-AgEI", name: nameSecret, match: run(&urlSafe, 50, 1<<12)}, // PyPI
		{prefix: "hf_", name: nameSecret, match: run(&alnum, 34, 255)},           // Hugging Face
		{prefix: "dckr_pat_", name: nameSecret, match: run(&urlSafe, 20, 255)},   // Docker Hub
		{prefix: "corral_", name: nameSecret, match: run(&urlSafe, 43, 255)},     // this program's servers
		{prefix: "SG.", name: nameSecret, match: sendGrid},
		{prefix: "eyJ", name: nameSecret, match: webToken},
		{prefix: "-----BEGIN ", name: nameSecret, match: privateKey},
		{prefix: "://", name: nameSecret, match: userInfo},
		{prefix: "authorization", nocase: true, name: nameSecret, match: authorization},
	}
	for _, f := range flags {
		rules = append(rules, &rule{prefix: f, name: nameSecret, match: flagValue})
	}
	for _, f := range [...]string{" -u", " --user", "\t-u", "\t--user"} {
		rules = append(rules, &rule{prefix: f, name: nameSecret, match: login})
	}
	for _, k := range keywords {
		rules = append(rules, &rule{prefix: k.word, nocase: true, name: k.name, match: assignment})
	}
	return rules
}

// keywords are ends of names whose value is a secret: CLIENT_SECRET=, "accessToken": and the like. Longer ones come
// first.
var keywords = []struct{ word, name string }{
	{"secret_access_key", nameAWS},
	{"secret-access-key", nameAWS},
	{"secretaccesskey", nameAWS},
	{"secret_key", nameSecret},
	{"secret-key", nameSecret},
	{"secretkey", nameSecret},
	{"secret", nameSecret},
	{"api_key", nameSecret},
	{"api-key", nameSecret},
	{"apikey", nameSecret},
	{"access_key", nameSecret},
	{"access-key", nameSecret},
	{"accesskey", nameSecret},
	{"account_key", nameSecret},
	{"account-key", nameSecret},
	{"accountkey", nameSecret},
	{"private_key", nameSecret},
	{"private-key", nameSecret},
	{"privatekey", nameSecret},
	{"credentials", nameSecret},
	{"token", nameSecret},
	{"_pass", nameSecret}, // "pass" without the underscore is what tests do
	{"passwd", nameSecret},
	{"password", nameSecret},
	{"passphrase", nameSecret},
}

// flags are command line flags whose next argument is a secret.
var flags = [...]string{
	"--password", "--passwd", "--passphrase", "--token", "--access-token", "--auth-token", "--api-token", "--secret",
	"--client-secret", "--secret-key", "--access-key", "--api-key", "--apikey",
}

// A class is a set of bytes.
type class [256]bool

func set(ranges string, others string) (c class) {
	for i := 0; i+1 < len(ranges); i += 2 {
		for b := int(ranges[i]); b <= int(ranges[i+1]); b++ {
			c[b] = true
		}
	}
	for _, b := range []byte(others) {
		c[b] = true
	}
	return c
}

func (c class) not() class {
	for i := range c {
		c[i] = !c[i]
	}
	return c
}

var (
	anyByte    = set("\x00\xff", "")
	upperDigit = set("AZ09", "")
	alnum      = set("AZaz09", "")
	word       = set("AZaz09", "_")
	slack      = set("AZaz09", "-")
	urlSafe    = set("AZaz09", "-_")
	// inWebToken is urlSafe and the dots between a token's parts.
	inWebToken = set("AZaz09", "-_.")
	// inValue excludes bytes at which another item of a line, an assignment or a query begins.
	inValue = set("\x00\x20\x7f\x7f", "\"'`,;&").not()
	// inUser and inPassword are the bytes of an address before its colon and before its last @.
	inUser     = set("\x00\x20\x7f\x7f", "\"'`<>()[]{}/:@\\").not()
	inPassword = set("\x00\x20\x7f\x7f", "\"'`<>/\\").not()
	// inKey is base64, and the bytes that separate and mark its lines in logs, diffs and JSON.
	inKey  = set("AZaz09", "+/=\r\n\t \\>|\"',:#*-")
	base64 = set("AZaz09", "+/=")
)

const unbounded = 1 << 62

// A matchContext is a rule's view of the text at a position. Looking beyond the available bytes sets short; the rule
// is then tried again with more.
type matchContext struct {
	position // of the prefix, for lookbehind
	b        []byte
	i        int  // index after the prefix
	last     bool // nothing follows b
	short    bool
	rules    *ruleset
}

// at returns the byte at i, or 0 beyond the end; no secret contains a zero byte.
func (l *matchContext) at(i int) byte {
	if i < len(l.b) {
		return l.b[i]
	}
	if !l.last {
		l.short = true
	}
	return 0
}

// while returns the end of the run of at most limit bytes of c at i.
func (l *matchContext) while(i int, c *class, limit int) int {
	end := i + limit
	for i < end && (i < len(l.b) || !l.last) && c[l.at(i)] {
		if l.short {
			return i
		}
		i++
	}
	return i
}

// has reports whether s is at i.
func (l *matchContext) has(i int, s string) bool {
	for k := range len(s) {
		if l.at(i+k) != s[k] || l.short {
			return false
		}
	}
	return true
}

// run matches a prefix followed by at least minLen bytes of c; up to maxLen of them belong to the secret.
func run(c *class, minLen, maxLen int) func(*matchContext) (int, valueMatcher, bool) {
	return func(l *matchContext) (int, valueMatcher, bool) {
		if l.while(l.i, c, minLen) < l.i+minLen {
			return 0, valueMatcher{}, false
		}
		return 0, valueMatcher{class: c, fixed: l.i, left: maxLen}, true
	}
}

// sendGrid matches SG., 22 characters, a dot, 43 characters.
func sendGrid(l *matchContext) (int, valueMatcher, bool) {
	dot := l.while(l.i, &urlSafe, 23)
	if dot != l.i+22 || l.at(dot) != '.' || l.while(dot+1, &urlSafe, 43) != dot+44 {
		return 0, valueMatcher{}, false
	}
	return 0, valueMatcher{class: &urlSafe, fixed: dot + 44}, true
}

// webToken matches a JSON web token (RFC 7519): base64url of {"…, a dot, another such part, a dot, a signature.
func webToken(l *matchContext) (int, valueMatcher, bool) {
	dot := l.while(l.i, &urlSafe, 1024)
	if dot < l.i+8 || !l.has(dot, ".eyJ") {
		return 0, valueMatcher{}, false
	}
	end := l.while(dot+4, &urlSafe, 2800)
	if end < dot+12 || l.at(end) != '.' || l.while(end+1, &urlSafe, 16) < end+17 {
		return 0, valueMatcher{}, false
	}
	return 0, valueMatcher{class: &inWebToken, left: unbounded}, true
}

// privateKey matches a key as in RFC 7468 and OpenPGP: its first line, followed by base64 or the fields of an
// encrypted key.
func privateKey(l *matchContext) (int, valueMatcher, bool) {
	kind := set("AZ09", " ")
	end := l.while(l.i, &kind, 64)
	if l.short || !bytes.Contains(l.b[l.i:end], []byte("PRIVATE KEY")) || !l.has(end, "-----") {
		return 0, valueMatcher{}, false
	}
	first := end + 5
	separators := set("", "\r\n\t \\>|\"',+#*")
	for range 32 { // each one byte, or the two of an escaped newline
		switch c := l.at(first); {
		case c == '\\' && (l.at(first+1) == 'n' || l.at(first+1) == 'r'):
			first += 2
		case separators[c]:
			first++
		}
	}
	field := set("AZaz09", "-")
	name := l.while(first, &field, 16)
	if l.while(first, &base64, 16) < first+16 && (name < first+5 || l.at(name) != ':') {
		return 0, valueMatcher{}, false
	}
	return 0, valueMatcher{class: &inKey, key: true, fixed: end + 5, left: maxKey}, true
}

// maxKey is above the length of any private key in text form. It bounds what a key without an end hides.
const maxKey = 32 << 10

// userInfo matches the password of an address such as postgres://ada:PASSWORD@host.
func userInfo(l *matchContext) (int, valueMatcher, bool) {
	colon := l.while(l.i, &inUser, 256)
	if l.at(colon) != ':' {
		return 0, valueMatcher{}, false
	}
	end := l.while(colon+1, &inPassword, 512)
	if l.short {
		return 0, valueMatcher{}, false
	}
	// A password may contain an @; a host cannot.
	end = colon + 1 + bytes.LastIndexByte(l.b[colon+1:max(end, colon+1)], '@')
	if end <= colon+1 || l.has(colon+1, "[REDACTED:") {
		return 0, valueMatcher{}, false
	}
	return colon + 1, valueMatcher{class: &inPassword, fixed: end - colon - 1}, true
}
