package admit

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"testing"

	"corral/egress/control"
	"corral/isolate/host"
	"corral/job"
)

// TestAccess: the entry decides, and two entries that do not agree allow nothing.
func TestAccess(t *testing.T) {
	npm, pypi, general := json.RawMessage("npm"), json.RawMessage("pypi"), json.RawMessage("general")
	s := Served{Config: Config{Network: general, Entries: []Entry{
		{Path: "/npm", Network: npm},
		{Path: "/closed"},
		{Path: "/twice", Network: npm},
		{Path: "/twice", Network: npm},
		{Path: "/differ", Network: npm},
		{Path: "/differ", Network: pypi},
		{Path: "/secrets", Network: npm, Requests: &Requests{Secrets: []control.Secret{{Name: "a", Value: "x"}}}},
		{Path: "/secrets", Network: npm, Requests: &Requests{Secrets: []control.Secret{{Name: "a", Value: "y"}}}},
		{Path: "/or-none"},
		{Path: "/or-none", Network: npm},
		{Path: "/none-or", Network: npm},
		{Path: "/none-or"},
		{Path: "/bare.git", Network: npm},
		{Path: "/general", Network: general},
		{Path: "/empty", Network: json.RawMessage("{}")},
		{Path: "/users", Network: npm, UIDs: []uint32{1000}},
		{Path: "/users", Network: pypi, UIDs: []uint32{1001}},
		{Path: "/user", Network: npm, UIDs: []uint32{1000}},
	}}}
	peer := host.Peer{UID: 1000}
	for _, tt := range []struct{ path, common, want string }{
		{"/npm", "", "npm"},
		{"/closed", "", ""},
		{"/own", "", "general"},
		{"/empty", "", ""},
		{"/users", "", "npm"},
		{"/npm/below", "", "general"},
		{"/twice", "", "npm"},
		{"/differ", "", ""},
		{"/secrets", "", ""},
		{"/or-none", "", ""},
		{"/none-or", "", ""},

		{"/twice", "/npm/.git", "npm"},
		{"/twice", "/bare.git", "npm"},
		{"/own", "/npm/.git", ""},
		{"/own", "/closed/.git", ""},
		{"/own", "/bare.git", ""},
		{"/own", "/general/.git", "general"},
		{"/own", "/elsewhere/.git", "general"},
		{"/closed", "/npm/.git", ""},
		{"/npm", "/closed/.git", ""},
		{"/npm", "/elsewhere/.git", "npm"},
	} {
		if got := s.Access(peer, Paths{tt.path, tt.common}); string(got.Rules) != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.path, tt.common, got.Rules, tt.want)
		}
	}
	for _, tt := range []struct {
		peer host.Peer
		path string
		want string
	}{
		{host.Peer{UID: 1001}, "/users", "pypi"},
		{host.Peer{UID: 1002}, "/users", ""},
		{host.Peer{UID: 1002}, "/user", "npm"}, // as the entry's limits apply to an owner whom it does not list
		{host.Peer{UID: 1000, Embedded: true}, "/users", ""},
	} {
		if got := s.Access(tt.peer, Paths{Repo: tt.path}); string(got.Rules) != tt.want {
			t.Errorf("%s for user %d: %q, want %q", tt.path, tt.peer.UID, got.Rules, tt.want)
		}
	}
}

// TestAccessToSecrets: the owner of a directory whose entry is for others may reach the entry's hosts, without its secrets.
func TestAccessToSecrets(t *testing.T) {
	npm := json.RawMessage("npm")
	requests := &Requests{Secrets: []control.Secret{{Name: "a", Value: "x"}}, Variables: []string{"A"}}
	entry := Entry{Path: "/repo", Network: npm, Requests: requests, UIDs: []uint32{1000}}
	for name, tt := range map[string]struct {
		served Config
		peer   host.Peer
		common string
		want   *Requests
	}{
		"listed":                 {Config{Entries: []Entry{entry}}, host.Peer{UID: 1000}, "", requests},
		"embedded":               {Config{Entries: []Entry{entry}}, host.Peer{UID: 1001, Embedded: true}, "", requests},
		"not listed":             {Config{Entries: []Entry{entry}}, host.Peer{UID: 1001}, "", new(Requests)},
		"not listed, same twice": {Config{Entries: []Entry{entry, entry}}, host.Peer{UID: 1001}, "", new(Requests)},
		"not listed, a worktree": {Config{Entries: []Entry{entry}}, host.Peer{UID: 1001}, "/repo/.git", new(Requests)},
		"any directory":          {Config{Network: npm, Requests: requests}, host.Peer{UID: 1001}, "", requests},
	} {
		s := Served{Config: tt.served}
		got := s.Access(tt.peer, Paths{"/repo", tt.common})
		if string(got.Rules) != "npm" || !reflect.DeepEqual(got.Requests, tt.want) {
			t.Errorf("%s: %s with %+v, want %+v", name, got.Rules, got.Requests, tt.want)
		}
	}
}

// TestAccessAgain: who may not use a directory any more reaches nothing from it, above all not what directories without an entry may.
func TestAccessAgain(t *testing.T) {
	inode, other := host.Inode{Dev: 1, Ino: 2}, host.Inode{Dev: 1, Ino: 3}
	npm, general := json.RawMessage("npm"), json.RawMessage("general")
	for name, tt := range map[string]struct {
		entries []Entry
		own     bool
		pinned  host.Inode
		bad     error
		uid     uint32
		common  uint32 // owner of the git directory; 0: none
		want    string
	}{
		"served":                      {entries: []Entry{{Path: "/repo", Network: npm}}, pinned: inode, uid: 1000, want: "npm"},
		"removed":                     {uid: 1000},
		"removed, for its owner":      {own: true, uid: 1000, want: "general"},
		"removed, for another user":   {own: true, uid: 1001},
		"removed, for root":           {want: "general"},
		"for others":                  {entries: []Entry{{Path: "/repo", Network: npm, UIDs: []uint32{1001}}}, pinned: inode, uid: 1000},
		"another directory":           {entries: []Entry{{Path: "/repo", Network: npm}}, pinned: other, uid: 1000},
		"rejected":                    {entries: []Entry{{Path: "/repo", Network: npm}}, bad: errors.New("overlaps"), own: true, uid: 1000},
		"a git directory of another":  {entries: []Entry{{Path: "/repo", Network: npm}}, pinned: inode, uid: 1000, common: 1001},
		"a git directory of the user": {entries: []Entry{{Path: "/repo", Network: npm}}, pinned: inode, own: true, uid: 1000, common: 1000, want: "npm"},
	} {
		s := Served{
			Config: Config{Network: general, Entries: tt.entries, Own: tt.own, reloaded: true},
			pinned: map[string]host.Inode{"/repo": tt.pinned}, bad: map[string]error{},
		}
		if tt.bad != nil {
			s.bad["/repo"] = tt.bad
		}
		repo := &Repo{Path: "/repo", Dir: os.Stdin, Inode: inode, Owner: host.Owner{UID: 1000}}
		if tt.common != 0 {
			repo.Common = &Repo{Path: "/git", Dir: os.Stdin, Owner: host.Owner{UID: tt.common}}
		}
		if got := s.AccessAgain(host.Peer{UID: tt.uid}, repo.Snapshot()); string(got.Rules) != tt.want {
			t.Errorf("%s: %q, want %q", name, got.Rules, tt.want)
		}
	}
}

// TestCheckNetwork: only what asks for hosts where none is allowed is refused here.
func TestCheckNetwork(t *testing.T) {
	for _, tt := range []struct {
		asked string
		rules json.RawMessage
		step  string
	}{
		{"", nil, ""},
		{job.NoNetwork, nil, ""},
		{"npm", nil, "network"},
		{"none npm", nil, "network"},
		{"", json.RawMessage("x"), ""},
		{job.NoNetwork, json.RawMessage("x"), ""},
		{"npm", json.RawMessage("x"), ""},
	} {
		err := CheckNetwork(tt.asked, tt.rules)
		if tt.step != "" {
			refusedAt(t, tt.asked, err, tt.step, 0)
		} else if err != nil {
			t.Errorf("%q with rules %q: %v", tt.asked, tt.rules, err)
		}
	}
}

// TestKeep: packages are kept for the users of repositories whose rules are about registries.
func TestKeep(t *testing.T) {
	s := Served{Config: Config{Entries: []Entry{
		{Path: "/all", Requests: &Requests{}},
		{Path: "/none"},
		{Path: "/some", UIDs: []uint32{1000}, Requests: &Requests{Keep: 5}},
		{Path: "/more", UIDs: []uint32{1000, 1001}, Requests: &Requests{Keep: 7}},
	}}}
	for uid, want := range map[uint32]int64{1000: 7, 1001: 7, 1002: 0} {
		if got := s.Keep(uid); got != want {
			t.Errorf("user %d: %d, want %d", uid, got, want)
		}
	}
	s.Requests = &Requests{Keep: 9} // of directories without an entry
	if got := s.Keep(1002); got != 9 {
		t.Errorf("%d", got)
	}
}
