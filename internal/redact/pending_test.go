package redact

import "testing"

// TestPending: views of a stream show prompts and the ends of lines, and nothing of a secret before it is complete.
func TestPending(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"ready on port 30", "ready on port 30"},
		{"Password: ", "Password: "},
		{"Password:", "Password:"},
		{"Enter a token", "Enter a token"},
		{"Passwo", "Passwo"},
		{"token = abc", "token = "},
		{"password: hunter2", "password: "},
		{"a ghp_0123456789", "a ghp_"},
		{"https://user:pass", "https://"},
		{"my literal-sec", "my li"},
		{"my li", "my li"},
		{"line\n", "line\n"},
		{"", ""},
	} {
		s := NewRules([]string{"literal-secret"}).Stream()
		got := string(s.Pending(s.Append(nil, []byte(tt.text), false)))
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
		s = NewRules([]string{"literal-secret"}).Stream()
		var out []byte
		for i := range tt.text {
			out = s.Append(out, []byte(tt.text[i:i+1]), false)
			_ = s.Pending(nil) // changes nothing
		}
		if got := string(s.Append(out, nil, true)); got != Text(tt.text, []string{"literal-secret"}) {
			t.Errorf("%q byte by byte: %q", tt.text, got)
		}
	}
}
