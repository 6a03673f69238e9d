package client

import (
	"errors"
	"os"
	"strings"
	"testing"

	"corral/job"
)

// TestOpenRepo: a repository is not opened through a link, in a front-end's own directories, or with the wrong owner.
func TestOpenRepo(t *testing.T) {
	top := t.TempDir()
	t.Setenv("HOME", top+"/home")
	t.Setenv("XDG_CONFIG_HOME", top+"/config")
	t.Setenv("XDG_STATE_HOME", "relative")
	if err := errors.Join(
		os.MkdirAll(top+"/home/.config/corral/x", 0o700), os.MkdirAll(top+"/home/.local/state/corral", 0o700),
		os.MkdirAll(top+"/config/corral", 0o700), os.Mkdir(top+"/repo", 0o700), os.Symlink("repo", top+"/link"),
		os.MkdirAll(top+"/dotfiles/state/x", 0o700), os.Mkdir(top+"/beside", 0o700),
		os.Remove(top+"/home/.local/state/corral"), os.Symlink("../../../beside/hop", top+"/home/.local/state/corral"),
		os.Symlink(top+"/dotfiles/state", top+"/beside/hop"),
	); err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid())
	for _, tt := range []struct {
		name   string
		client *Client
		path   string
		want   string // in the refusal; "" is none
		none   bool   // nothing is opened
	}{
		{"one", &Client{}, "/repo", "", false},
		{"the configured owner", &Client{Owner: owned(top+"/repo", uid)}, "/repo", "", false},
		{"another owner", &Client{Owner: owned(top+"/repo", uid+1)}, "/repo", "its entry in the configuration says", false},
		{"by its path", &Client{ByPath: true}, "/link", "", true},
		{"a link", &Client{}, "/link", `link" is a symbolic link`, false},
		{"through a link", &Client{}, "/link/x", `leads through the symbolic link "` + top + `/link"`, false},
		{"not there", &Client{}, "/none", "no such file or directory", false},
		{"configuration", &Client{}, "/config/corral", "corral keeps its configuration", false},
		{"what holds it", &Client{}, "/config", "corral keeps its configuration", false},
		{"in it, by its path", &Client{ByPath: true}, "/home/.config/corral/x", "corral keeps its configuration", false},
		{"state", &Client{}, "/home/.local/state", "corral keeps its configuration or state", false},
		{"state behind links", &Client{}, "/dotfiles", "corral keeps its configuration or state", false},
		{"a link on the way", &Client{}, "/beside", "corral keeps its configuration or state", false},
		{"in it, behind links", &Client{ByPath: true}, "/dotfiles/state/x", "corral keeps its configuration or state", false},
		{"refused", &Client{Vet: func(string) error { return errors.New("not this one") }}, "/repo", "not this one", false},
	} {
		dir, err := tt.client.openRepo(top + tt.path)
		if dir != nil {
			dir.Close()
		}
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) || (dir == nil) != (tt.none || err != nil) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		var refusal *job.Refusal
		if err != nil && tt.client.Vet == nil && !errors.As(err, &refusal) {
			t.Errorf("%s: %v is not a refusal", tt.name, err)
		}
	}
}

// owned returns a Client.Owner that knows the owner of one path.
func owned(path string, uid uint32) func(string) (uint32, bool) {
	return func(of string) (uint32, bool) { return uid, of == path }
}
