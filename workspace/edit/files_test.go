package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// runFiles carries out an operation in a directory, as corral-layer does, and returns what it wrote and its exit code.
func runFiles(t *testing.T, dir string, r FileRequest) (out string, code int, err error) {
	t.Helper()
	t.Chdir(dir)
	var b bytes.Buffer
	err = RunFiles(nil, strings.NewReader(r.Encode()), &b)
	var failed *FileError
	switch {
	case errors.As(err, &failed):
		code = failed.ExitCode()
	case err != nil:
		code = 1
	}
	return b.String(), code, err
}

// TestFilesHostile: what a repository has in it leads no operation elsewhere, and stops none.
func TestFilesHostile(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(secret, "s")
	put(dir+"/file", "old")
	for _, err := range []error{
		os.Symlink(secret, dir+"/link"), os.Symlink(outside, dir+"/up"), os.Symlink(dir+"/file", dir+"/inside"), unix.Mkfifo(dir+"/fifo", 0o600),
		os.MkdirAll(dir+"/.git/hooks", 0o700), os.MkdirAll(dir+"/.agents", 0o700), os.MkdirAll(dir+"/d/.agents", 0o700),
		os.WriteFile(dir+"/huge", nil, 0o600), os.Truncate(dir+"/huge", MaxFile+1), os.Symlink("loop", dir+"/loop"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	keep, hide := []string{".agents"}, []string{"d/hidden", "file"}
	for name, tt := range map[string]struct {
		r    FileRequest
		code int
		want string
	}{
		"write by a link":           {FileRequest{Op: OpWrite, Path: dir + "/link"}, 1, "leads out"},
		"write below a link":        {FileRequest{Op: OpWrite, Path: dir + "/up/new"}, 1, "leads out"},
		"write by ..":               {FileRequest{Op: OpWrite, Path: dir + "/../new"}, 1, "leads out"},
		"write elsewhere":           {FileRequest{Op: OpWrite, Path: secret}, 1, "leads out"},
		"write a FIFO":              {FileRequest{Op: OpWrite, Path: dir + "/fifo"}, 1, "no such device"},
		"write to git":              {FileRequest{Op: OpWrite, Path: dir + "/.GIT/config"}, 1, "git directory"},
		"make in git":               {FileRequest{Op: OpMkdir, Path: dir + "/.git/x"}, 1, "git directory"},
		"remove git":                {FileRequest{Op: OpRemove, Path: dir + "/.git", Recursive: true}, 1, "git directory"},
		"remove the repository":     {FileRequest{Op: OpRemove, Path: dir, Recursive: true}, ExitState, "itself"},
		"remove below a link":       {FileRequest{Op: OpRemove, Path: dir + "/up/secret"}, 1, "leads out"},
		"copy out":                  {FileRequest{Op: OpCopy, Path: dir + "/file", To: outside + "/new"}, 1, "leads out"},
		"copy into itself":          {FileRequest{Op: OpCopy, Path: dir + "/d", To: dir + "/d/e", Recursive: true}, ExitState, "into itself"},
		"read a FIFO":               {FileRequest{Op: OpRead, Path: dir + "/fifo"}, ExitState, "not a regular"},
		"read a device":             {FileRequest{Op: OpRead, Path: "/dev/zero"}, ExitState, "not a regular"},
		"read a huge file":          {FileRequest{Op: OpRead, Path: dir + "/huge"}, ExitState, "at most"},
		"read a loop":               {FileRequest{Op: OpRead, Path: dir + "/loop"}, 1, "too many"},
		"write what is protected":   {FileRequest{Op: OpWrite, Path: dir + "/.agents/x", ReadOnly: keep}, 1, "no changes"},
		"remove what has protected": {FileRequest{Op: OpRemove, Path: dir + "/d", Recursive: true, ReadOnly: []string{"d/.agents"}}, 1, "no changes"},
		"make protected":            {FileRequest{Op: OpMkdir, Path: dir + "/.agents/x/y", Recursive: true, ReadOnly: keep}, 1, "no changes"},
		"write nothing":             {FileRequest{Op: OpWrite, Path: dir + "/new", ReadOnly: []string{""}}, 1, "no changes"},
		"write beside what is open": {FileRequest{Op: OpWrite, Path: dir + "/file", ReadOnly: []string{""}, Open: []string{"d"}}, 1, "no changes"},
		"make beside what is open":  {FileRequest{Op: OpMkdir, Path: dir + "/x/../d/n", Recursive: true, ReadOnly: []string{""}, Open: []string{"d"}}, 1, "no changes"},
		"write protected, in open":  {FileRequest{Op: OpWrite, Path: dir + "/d/.agents/x", ReadOnly: []string{"", "d/.agents"}, Open: []string{"d"}}, 1, "no changes"},
		"remove what is open":       {FileRequest{Op: OpRemove, Path: dir + "/d", Recursive: true, ReadOnly: []string{"", "d/.agents"}, Open: []string{"d"}}, 1, "no changes"},
		"read hidden by a link":     {FileRequest{Op: OpRead, Path: dir + "/inside", Hidden: hide}, 1, "hidden"},
		"read by a pattern":         {FileRequest{Op: OpRead, Path: dir + "/inside", Patterns: []string{"^" + dir + "/fi.*$"}}, 1, "hidden"},
		"write by a pattern":        {FileRequest{Op: OpWrite, Path: dir + "/new.env", Patterns: []string{`\.env$`}}, 1, "no changes"},
		"remove with a pattern":     {FileRequest{Op: OpRemove, Path: dir + "/d", Recursive: true, Patterns: []string{`\.env$`}}, 1, "no changes"},
		"a bad pattern":             {FileRequest{Op: OpRead, Path: dir + "/file", Patterns: []string{"("}}, 1, "not valid"},
		"write hidden by a link":    {FileRequest{Op: OpWrite, Path: dir + "/inside", Hidden: hide}, 1, "no changes"},
		"missing":                   {FileRequest{Op: OpRead, Path: dir + "/none/x"}, ExitMissing, "no such file"},
		"write into missing":        {FileRequest{Op: OpWrite, Path: dir + "/none/x"}, ExitMissing, "no directory"},
		"remove missing":            {FileRequest{Op: OpRemove, Path: dir + "/none"}, ExitMissing, ""},
		"file as directory":         {FileRequest{Op: OpMkdir, Path: dir + "/file/x"}, 1, "not a directory"},
		"unknown":                   {FileRequest{Op: "chmod", Path: dir}, 1, "not valid"},
	} {
		out, code, err := runFiles(t, dir, tt.r)
		if err == nil || code != tt.code || !strings.Contains(err.Error(), tt.want) || out != "" {
			t.Errorf("%s: %q, %d, %v", name, out, code, err)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "s" {
		t.Errorf("the file outside: %q, %v", b, err)
	}
	if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != "old" {
		t.Errorf("the file: %q, %v", b, err)
	}
}

// TestFilesKeep: writing keeps a file's mode and links to it, and removing a link leaves what it leads to.
func TestFilesKeep(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(dir+"/file", []byte("longer"), 0o600), os.Chmod(dir+"/file", 0o751), os.Link(dir+"/file", dir+"/same"),
		os.Symlink("file", dir+"/link"), os.Mkdir(dir+"/d", 0o700), os.Symlink("d", dir+"/dlink"), os.WriteFile(dir+"/d/x", nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []FileRequest{
		{Op: OpWrite, Path: dir + "/link", Data: []byte("new")},
		{Op: OpMkdir, Path: dir + "/d/n", ReadOnly: []string{""}, Open: []string{"d"}},
		{Op: OpMkdir, Path: dir + "/o/p/q", Recursive: true, ReadOnly: []string{""}, Open: []string{"o/p"}},
		{Op: OpRemove, Path: dir + "/dlink", Recursive: true},
		{Op: OpRemove, Path: dir + "/none", Force: true},
	} {
		if out, _, err := runFiles(t, dir, r); err != nil || out != "" {
			t.Errorf("%+v: %q, %v", r, out, err)
		}
	}
	b, err := os.ReadFile(dir + "/same")
	info, _ := os.Stat(dir + "/same")
	if err != nil || string(b) != "new" || info.Mode().Perm() != 0o751 {
		t.Errorf("%q, %v, %v", b, info.Mode(), err)
	}
	if _, err := os.Stat(dir + "/d/x"); err != nil {
		t.Error(err)
	}
	out, _, err := runFiles(t, dir, FileRequest{Op: OpStat, Path: dir + "/link"})
	for _, want := range []string{`"isDirectory":false,"isFile":true,"isSymlink":true,`, `"size":3}`} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q, %v: no %s", out, err, want)
		}
	}
}

// TestFilesWalk: a walk ends at its bounds, says so, and enters no directory twice.
func TestFilesWalk(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(dir+"/a/b/c", 0o700), os.Mkdir(dir+"/.h", 0o700), os.WriteFile(dir+"/a/f", nil, 0o600), os.Symlink("..", dir+"/a/up"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	paths := func(b WalkBounds) string {
		out, _, err := runFiles(t, dir, FileRequest{Op: OpWalk, Path: dir, Walk: b})
		if err != nil {
			t.Error(err)
		}
		var list []string
		var got walk
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Error(err)
		}
		for _, e := range got.Entries {
			list = append(list, e.Kind[:1]+strings.TrimPrefix(e.Path, "file://"+dir))
		}
		if got.Cut {
			list = append(list, "t")
		}
		return strings.Join(list, " ")
	}
	for want, b := range map[string]WalkBounds{
		"d/.h d/a d/a/b f/a/f d/a/b/c":        {},
		"d/a d/a/b f/a/f d/a/b/c":             {Prune: true},
		"d/.h d/a":                            {Depth: 1},
		"d/.h d/a t":                          {Entries: 2},
		"d/.h d/a d/a/b f/a/f d/a/up d/a/b/c": {Follow: true},
		"d/.h d/a d/a/b f/a/f t":              {Directories: 3},
	} {
		if got := paths(b); got != want {
			t.Errorf("%+v: %q, want %q", b, got, want)
		}
	}
}
