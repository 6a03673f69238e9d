package job

import (
	"context"
	"strings"
	"testing"
)

// listed is a list of sessions.
type listed []Session

func (listed) OpenSession(context.Context, SessionSpec) (Session, error) { return Session{}, nil }
func (listed) CloseSession(context.Context, string, bool) (bool, error)  { return false, nil }
func (l listed) ListSessions(context.Context) ([]Session, error)         { return l, nil }

// TestFindSession: an id wins over names, a name must be unique, and open sessions win over kept layers on request only.
func TestFindSession(t *testing.T) {
	all := listed{
		{ID: "1", Name: "a", Kept: true},
		{ID: "2", Name: "a"},
		{ID: "3", Name: "b", Kept: true},
		{ID: "4", Name: "b", Kept: true},
		{ID: "5", Name: "1"},
		{ID: "6", Name: "c"},
		{ID: "7", Name: "c"},
	}
	for _, tt := range []struct {
		name      string
		openFirst bool
		id, err   string
	}{
		{"1", true, "1", ""},
		{"5", false, "5", ""},
		{"a", true, "2", ""},
		{"a", false, "", "2 sessions are called"},
		{"b", true, "", "2 sessions are called"},
		{"c", true, "", "2 sessions are called"},
		{"d", true, "", "there is no session \"d\"\nhint: "},
		{"\u202e", false, "", `"\u202e"`},
	} {
		s, err := FindSession(t.Context(), all, tt.name, tt.openFirst)
		if tt.err == "" && (err != nil || s.ID != tt.id) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q, %t: %s, %v; want %s, %q", tt.name, tt.openFirst, s.ID, err, tt.id, tt.err)
		}
	}
}
