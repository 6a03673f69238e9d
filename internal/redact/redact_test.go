package redact

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// Values that look like secrets, assembled here so that no secret scanner reports them in the source.
var (
	akia = "AKIA" + "IOSFODNN7EXAMPLE"
	ghp  = "ghp_" + strings.Repeat("a1B2", 9)
	pat  = "github_pat_" + strings.Repeat("x9_", 20)
	jwt  = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + strings.Repeat("Sf-_", 8)
	body = strings.Repeat(strings.Repeat("MIIEow+/", 8)+"\n", 24) + "c2hvcnQ=\n"
	key  = "-----BEGIN RSA PRIVATE KEY-----\n" + body + "-----END RSA PRIVATE KEY-----"
	// sendGridID is the first part of a key of SendGrid.
	sendGridID = strings.Repeat("aB3_-", 4) + "xy"
	blanks     = strings.Repeat("\n", strings.Count(key, "\n"))
)

func redacted(in string, secrets ...string) string {
	r := NewRules(secrets).Stream()
	return string(r.Append(nil, []byte(in), true))
}

// inPieces redacts in, cut at the given positions.
func inPieces(in string, cuts []int, secrets ...string) string {
	r := NewRules(secrets).Stream()
	var out []byte
	from := 0
	for _, c := range cuts {
		out = r.Append(out, []byte(in[from:c]), false)
		from = c
	}
	return string(r.Append(out, []byte(in[from:]), true))
}

var redactions = []struct{ in, want string }{
	{akia, "[REDACTED:aws-key]"},
	{"x " + akia + " y\n", "x [REDACTED:aws-key] y\n"},
	{"\x1b[31m" + akia + "\x1b[0m", "\x1b[31m[REDACTED:aws-key]\x1b[0m"},
	{"ASIA" + strings.Repeat("Z", 16) + "z", "[REDACTED:aws-key]z"},
	{"AKIA" + strings.Repeat("Z", 15), "AKIA" + strings.Repeat("Z", 15)},
	{"akia" + strings.Repeat("z", 16), "akia" + strings.Repeat("z", 16)},
	{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPx", "AWS_SECRET_ACCESS_KEY=[REDACTED:aws-key]"},
	{`"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG",`, `"SecretAccessKey": "[REDACTED:aws-key]",`},
	{ghp, "[REDACTED:github-token]"},
	{"gh" + "p_short", "ghp_short"},
	{"https://x:" + ghp + "@github.com", "https://x:[REDACTED:secret]@github.com"},
	{pat + " end", "[REDACTED:github-token] end"},
	{"token=" + ghp + "\n", "token=[REDACTED:github-token]\n"},
	{`{"token":"` + ghp + `"}`, `{"token":"[REDACTED:github-token]"}`},
	{"xox" + "b-1234567890-abcdefghijkl!", "[REDACTED:secret]!"},
	{"AIza" + strings.Repeat("y", 35), "[REDACTED:secret]"},
	{"sk-ant-" + strings.Repeat("api03-", 5), "[REDACTED:secret]"},
	{"sk-" + strings.Repeat("Q1", 24), "[REDACTED:secret]"},
	{"sk-circle-fade-dot-animation-delay-1234", "sk-circle-fade-dot-animation-delay-1234"},
	{jwt, "[REDACTED:secret]"},
	{"Authorization: Bearer abcdefgh12345", "Authorization: Bearer [REDACTED:secret]"},
	{`curl -H "authorization: basic dXNlcjpwYXNz" x`, `curl -H "authorization: basic [REDACTED:secret]" x`},
	{"authorization: required", "authorization: required"},
	{"postgres://ada:hunter2@db/x", "postgres://ada:[REDACTED:secret]@db/x"},
	{"redis://:p4ss@h", "redis://:[REDACTED:secret]@h"},
	{"postgres://u:p@ss@host/x", "postgres://u:[REDACTED:secret]@host/x"},
	{"postgres://u:p@@ss@h b@c", "postgres://u:[REDACTED:secret]@h b@c"},
	{"http://localhost:8080/a@b ssh://git@host:22", "http://localhost:8080/a@b ssh://git@host:22"},
	{"a" + key + "b", "a[REDACTED:secret]" + blanks + "b"},
	{`"` + strings.ReplaceAll(key, "\n", `\n`) + `\n"`, `"[REDACTED:secret]\n"`},
	{"-----BEGIN RSA PRIVATE KEY-----\nnot a key at all\n", "-----BEGIN RSA PRIVATE KEY-----\nnot a key at all\n"},
	{"-----BEGIN PUBLIC KEY-----\n" + body, "-----BEGIN PUBLIC KEY-----\n" + body},

	{"password=hunter2", "password=[REDACTED:secret]"},
	{"PASSWORD: hunter2\nnext", "PASSWORD: [REDACTED:secret]\nnext"},
	{"client_secret = 'it''s' x", "client_secret = 'it''s' x"},
	{`api_key="abc\"def" rest`, `api_key="[REDACTED:secret]" rest`},
	{`apiKey: 'abcdef' rest`, `apiKey: '[REDACTED:secret]' rest`},
	{`{\"password\": \"hunter22\"}`, `{\"password\": \"[REDACTED:secret]\"}`},
	{`"passwd" => "hunter22"`, `"passwd" => "[REDACTED:secret]"`},
	{`config["token"] = "abcdefgh"`, `config["token"] = "[REDACTED:secret]"`},
	{"x?token=abcdef123&y=1", "x?token=[REDACTED:secret]&y=1"},
	{"token := \"unterminated value\nnext", "token := \"[REDACTED:secret]\nnext"},
	{"SECRET_TOKEN=" + strings.Repeat("v", 10000) + " x", "SECRET_TOKEN=[REDACTED:secret] x"},
	{"token: Bearer abcdefgh", "token: Bearer [REDACTED:secret]"},
	{"password=[REDACTED:aws-key]", "password=[REDACTED:aws-key]"},

	{`password="${PASS}realsecret" x`, `password="[REDACTED:secret]" x`},
	{"password=${A}realsecret x", "password=[REDACTED:secret] x"},
	{"password=<realsecret123>", "password=[REDACTED:secret]"},
	{"password=<a>realsecret", "password=[REDACTED:secret]"},
	{"password=$(unclosed", "password=[REDACTED:secret]"},
	{"DB_PASS=hunter2", "DB_PASS=[REDACTED:secret]"},
	{"AccountName=x;AccountKey=abcdef0123==;End=y", "AccountName=x;AccountKey=[REDACTED:secret];End=y"},
	{"accessKey=abcdef0123", "accessKey=[REDACTED:secret]"},
	{"SharedAccessKey=abcdef0123=", "SharedAccessKey=[REDACTED:secret]"},
	{"private_key=abcdef0123", "private_key=[REDACTED:secret]"},
	{"credentials=ada/abcdef", "credentials=[REDACTED:secret]"},
	{"dckr_" + "pat_" + strings.Repeat("aB3", 9), "[REDACTED:secret]"},
	{"corral_" + strings.Repeat("aB-", 14) + "9.", "[REDACTED:secret]."},
	{"corral_" + strings.Repeat("x", 42), "corral_" + strings.Repeat("x", 42)},
	{"SG." + sendGridID + "." + strings.Repeat("xY9-", 10) + "abc end", "[REDACTED:secret] end"},
	{"SG." + sendGridID + "." + strings.Repeat("b", 42) + " end", "SG." + sendGridID + "." + strings.Repeat("b", 42) + " end"},
	{"SG." + sendGridID + ":" + strings.Repeat("b", 43) + " end", "SG." + sendGridID + ":" + strings.Repeat("b", 43) + " end"},
	// What is not the last line of a key does not end it.
	{"-----BEGIN RSA PRIVATE KEY-----\n" + body + "-----END RSA PRIVATE KEY---- and text", "[REDACTED:secret]" + blanks},
	{"-----BEGIN RSA PRIVATE KEY-----\n" + body + "-----END lower-----\nnext", "[REDACTED:secret]" + blanks + "\n"},
	{"-----BEGIN RSA PRIVATE KEY-----\n" + body + "-----END RSA PRIVATE KEY", "[REDACTED:secret]" + blanks},
	{"mysql --password hunter2x -h db", "mysql --password [REDACTED:secret] -h db"},
	{"x --token 'abc def' y", "x --token '[REDACTED:secret]' y"},
	{"x --password=hunter2 y", "x --password=[REDACTED:secret] y"},
	{"curl -u user:password123 http://h", "curl -u user:[REDACTED:secret] http://h"},
	{`curl --user "user:password 123" h`, `curl --user "user:[REDACTED:secret]" h`},
	{"curl --user=user:password123", "curl --user=user:[REDACTED:secret]"},
	{"TestToken=hunter2x", "TestToken=[REDACTED:secret]"},
	{"Testify_token: hunter2x", "Testify_token: [REDACTED:secret]"},
	{"password: xkqzjvbnw", "password: [REDACTED:secret]"},
	{"password: hunter-two", "password: [REDACTED:secret]"},
	{"password:letters", "password:[REDACTED:secret]"},
	{"password=letters", "password=[REDACTED:secret]"},
	{"password: mixedCase", "password: [REDACTED:secret]"},

	// Ordinary output.
	{"TestToken: expected 12", "TestToken: expected 12"},
	{"TestToken: token_test.go:12: got 5", "TestToken: token_test.go:12: got 5"},
	{"BenchmarkMySecret: 123456", "BenchmarkMySecret: 123456"},
	{"test_password: PASSED", "test_password: PASSED"},
	{"error: unexpected token: identifier", "error: unexpected token: identifier"},
	{"invalid token: unexpected, at line 1", "invalid token: unexpected, at line 1"},
	{"--- PASS: TestFoo123 (0.00s)", "--- PASS: TestFoo123 (0.00s)"},
	{"  --password PASSWORD  use --password instead of it", "  --password PASSWORD  use --password instead of it"},
	{"  --token string   bearer", "  --token string   bearer"},
	{"docker run -u 100000:100000 x", "docker run -u 100000:100000 x"},
	{"git push -u origin https://h/x", "git push -u origin https://h/x"},
	{`password="${A}${B}" password='{{ .Values.secret }}' token: <your-token-here>`, `password="${A}${B}" password='{{ .Values.secret }}' token: <your-token-here>`},
	{"tokens: 123456 tokenize: abcdefg secrets = abcdefg", "tokens: 123456 tokenize: abcdefg secrets = abcdefg"},
	{"password=abc", "password=abc"},
	{"password: string;", "password: string;"},
	{`{"a":{"password":null}}`, `{"a":{"password":null}}`},
	{"token = get_token(x)", "token = get_token(x)"},
	{"token = os.environ['X']", "token = os.environ['X']"},
	{"token=${{ secrets.X }} password=$(cat x) secret: <hidden>", "token=${{ secrets.X }} password=$(cat x) secret: <hidden>"},
	{"token::TokenStream secret::Key", "token::TokenStream secret::Key"},
	{"if (token) return; the password is wrong", "if (token) return; the password is wrong"},
	{"Password:\nLast login", "Password:\nLast login"},
	{"", ""},
	{"\x00\xff\xfe binary \x80", "\x00\xff\xfe binary \x80"},
}

func TestRedact(t *testing.T) {
	for _, tt := range redactions {
		if got := redacted(tt.in); got != tt.want {
			t.Errorf("%.80q:\n got %.200q\nwant %.200q", tt.in, got, tt.want)
		}
	}
}

// TestRedactAtEachSplit cuts each example at each position, and into single bytes.
func TestRedactAtEachSplit(t *testing.T) {
	for _, tt := range redactions {
		in := "before\n" + tt.in + "\nafter"
		want := redacted(in)
		var every []int
		for i := range len(in) + 1 {
			if len(in) > 4000 && i%41 != 0 {
				continue
			}
			every = append(every, i)
			if got := inPieces(in, []int{i}); got != want {
				t.Errorf("%.80q cut at %d: %.200q", tt.in, i, got)
			}
		}
		if got := inPieces(in, every); got != want {
			t.Errorf("%.80q byte by byte: %.200q", tt.in, got)
		}
	}
}

func TestRedactLiterals(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 600)
	for _, tt := range []struct {
		secrets  []string
		in, want string
	}{
		{[]string{"correct horse"}, "a correct horse b", "a [REDACTED:secret] b"},
		{[]string{"seven77"}, "a seven77 b", "a seven77 b"},
		{[]string{"eight888"}, "eight888eight888", "[REDACTED:secret][REDACTED:secret]"},
		{[]string{"eight888", "eight888-and-more"}, "x eight888-and-more", "x [REDACTED:secret]"},
		{[]string{"Case-Sensitive"}, "case-sensitive Case-Sensitive", "case-sensitive [REDACTED:secret]"},
		{[]string{"with space inside"}, "token=with space inside.", "token=[REDACTED:secret]."},
		{[]string{"two\nlines"}, "a two\nlines b", "a [REDACTED:secret]\n b"},
		{[]string{"\xff\xfe\x00binary"}, "\xff\xfe\x00binary", "[REDACTED:secret]"},
		{nil, "nothing", "nothing"},
	} {
		for i := range len(tt.in) {
			if got := inPieces(tt.in, []int{i}, tt.secrets...); got != tt.want {
				t.Errorf("%q in %q cut at %d: %q, want %q", tt.secrets, tt.in, i, got, tt.want)
			}
		}
	}
	if got := redacted("<"+long+">", long); strings.Contains(got, "0123") || !strings.HasPrefix(got, "<[") || !strings.HasSuffix(got, "]>") {
		t.Errorf("a value longer than the lookahead: %.100q", got)
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("%04d-secret", i))
	}
	if got := redacted(strings.Join(many, " "), many...); strings.Contains(got, "-") {
		t.Errorf("a thousand values: %.100q", got)
	}
}

// TestRedactRuns compares the rules that are a prefix and a run of characters with regular expressions.
func TestRedactRuns(t *testing.T) {
	names := regexp.MustCompile(`(AKIA|ASIA)[A-Z0-9]{16,32}|gh[pousr]_[A-Za-z0-9]{36,255}|glpat-[A-Za-z0-9_-]{20,255}|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{36,255}`)
	rng := rand.New(rand.NewPCG(1, 2))
	letters := []string{"A", "K", "I", "A", "g", "h", "p", "_", "-", "0", "\n", "\xff", "AKIA", "ASIA", "ghp_", "glpat-", "AIza", "npm_", strings.Repeat("Z", 12), strings.Repeat("a1", 15)}
	hits := 0
	for range 3000 {
		var b strings.Builder
		for range rng.IntN(40) {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		in := b.String()
		want := names.ReplaceAllStringFunc(in, func(m string) string {
			hits++
			switch m[:4] {
			case "AKIA", "ASIA":
				return "[REDACTED:aws-key]"
			case "AIza", "npm_", "glpa":
				return "[REDACTED:secret]"
			}
			return "[REDACTED:github-token]"
		})
		if got := redacted(in); got != want {
			t.Fatalf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
	if hits < 100 {
		t.Errorf("only %d secrets were generated", hits)
	}
}

// TestUndecided: only bytes at which a rule may begin are held back, including a newline at the front of a secret.
func TestUndecided(t *testing.T) {
	for _, tt := range []struct {
		in, secret, want string
	}{
		{"ready\n", "hush-hush-value", "ready\n"},
		{"ready\nA", "hush-hush-value", "ready\n"},
		{"ready\nAB", "hush-hush-value", "ready\n"},
		{"ready\nABCDE", "hush-hush-value", "ready\nA"}, // each scanner holds back two bytes
		{"ready\n", "y\nhush-hush-value", "re"},
		{"\n", "hush-hush-value", "\n"},
	} {
		r := NewRules([]string{tt.secret}).Stream()
		if got := string(r.Append(nil, []byte(tt.in), false)); got != tt.want {
			t.Errorf("%q, %q: got %q", tt.in, tt.secret, got)
		}
	}
	const secret = "y\nhush-hush-value"
	r := NewRules([]string{secret}).Stream()
	out := r.Append(nil, []byte("ready\n"), false)
	if out = r.Append(out, []byte("hush-hush-value"), true); string(out) != "read[REDACTED:secret]\n" {
		t.Errorf("got %q", out)
	}
}

// TestNoRules: the zero Rules pass everything on at once.
func TestNoRules(t *testing.T) {
	s := Rules{}.Stream()
	if got := string(s.Append([]byte("a "), []byte("\n"+akia), false)); got != "a \n"+akia {
		t.Errorf("%q", got)
	}
	if got := s.Append(nil, nil, true); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func FuzzRedact(f *testing.F) {
	for _, tt := range redactions {
		if len(tt.in) < 5000 {
			f.Add(tt.in, "correct horse", uint64(len(tt.in)))
		}
	}
	f.Fuzz(func(t *testing.T, in, secret string, seed uint64) {
		want := redacted(in, secret)
		if got, n := strings.Count(want, "\n"), strings.Count(in, "\n"); got != n {
			t.Fatalf("%q: %d lines, were %d", in, got, n)
		}
		if len(secret) >= minLiteral && !strings.Contains("[REDACTED:secret]", secret) && strings.Contains(in, secret) && want == in {
			t.Fatalf("%q is in %q", secret, want)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		var cuts []int
		for at := 0; ; {
			if at += rng.IntN(40); at > len(in) {
				break
			}
			cuts = append(cuts, at)
		}
		if got := inPieces(in, cuts, secret); got != want {
			t.Fatalf("%q cut at %v:\n got %q\nwant %q", in, cuts, got, want)
		}
	})
}

// TestRedactKeepsAll: bytes that are not part of a secret never change.
func TestRedactKeepsAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	in := make([]byte, 1<<20)
	for i := range in {
		in[i] = byte(rng.Uint32())
	}
	if got := redacted(string(in)); got != string(in) {
		t.Error("random bytes were changed")
	}
}

// TestRedactText: Text applies the rules for output, and the given values.
func TestRedactText(t *testing.T) {
	if got := Text("a "+akia+"\nb correct horse c\n", []string{"correct horse"}); got != "a [REDACTED:aws-key]\nb [REDACTED:secret] c\n" {
		t.Errorf("%q", got)
	}
	if got := Text("", nil); got != "" {
		t.Errorf("%q", got)
	}
}
