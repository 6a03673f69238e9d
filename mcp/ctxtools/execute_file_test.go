package ctxtools

import (
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
)

// TestFileRequest: the path is passed in the environment, and is never part of the program.
func TestFileRequest(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(301, "refused")
	x, k := newCtx(t, f)
	const path = `a dir/it's "a" $(file).log`
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &ExecuteFile{x}, `{"path":"a dir/it's \"a\" $(file).log","language":"shell","code":"echo 1","timeout":"400","intent":"refused","cwd":"ignored"}`)
	q := f.Request
	if q.Tool != "ctx_execute_file" || q.Runtime != "shell" || q.Dir != "" || q.Usual.Wall != 400*time.Millisecond || len(q.Env) != 1 || *q.Env["CORRAL_FILE"] != path {
		t.Errorf("request %+v", q)
	}
	if strings.Contains(*q.Code, "dir") || !strings.HasSuffix(*q.Code, "; echo 1") {
		t.Errorf("the code is %q", *q.Code)
	}
	if !strings.HasPrefix(r.Text, `Indexed 31 sections from "file:a dir/it's \"a\" $(file).log" into`) || k.added[0].Label != "file:"+path {
		t.Errorf("%q, %+v", r.Text, k.added[0])
	}
}

// TestFilePaths: paths outside the repository are refused before a job starts; the others become labels.
func TestFilePaths(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"..", `path: ".." is outside the repository`},
		{"../x", `path: "../x" is outside the repository`},
		{"a/../../x", `path: "a/../../x" is outside the repository`},
		{"./..//x", `path: "./..//x" is outside the repository`},
		{"/etc/passwd", `path: "/etc/passwd" is outside the repository`},
		{"/srv/app/../x", `path: "/srv/app/../x" is outside the repository`},
		{"/srv/apple", `path: "/srv/apple" is outside the repository`},
		{"/srv/other/x", `path: "/srv/other/x" is outside the repository`},
		{"/", `path: "/" is outside the repository`},
		{"", "path: has 0 characters, the minimum is 1"},
		{`a\u0000`, "path: contains a NUL byte"},
	} {
		f := mcptest.NewFakeRunner()
		x, _ := newCtx(t, f)
		x.Paths = map[string]string{"app": "/srv/app", "other": "/srv/other"}
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &ExecuteFile{x}, `{"path":"`+tt.path+`","language":"shell","code":"x"}`)
		if !r.IsError || r.Text != tt.want || f.Request != nil {
			t.Errorf("%s: %q", tt.path, r.Text)
		}
	}
	long := strings.Repeat("ö", 200)
	for _, tt := range []struct{ path, want string }{
		{"a/../b", "file:a/../b"},
		{"..x", "file:..x"},
		{"/etc/passwd", "file:/etc/passwd"},
		{"two\nlines", "file:two lines"},
		{long, "file:…" + long[:150]},
	} {
		if got := fileLabel(tt.path); got != tt.want {
			t.Errorf("%q: got %q", tt.path, got)
		}
	}
}

// TestPlainPath: a path with a special meaning in some language gets a form without one.
func TestPlainPath(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"server.log", "server.log"},
		{"a/b c", "a/b c"},
		{"/srv/app/server.log", "/srv/app/server.log"},
		{"/srv/app/a:b", "/srv/app/a:b"},
		{"./-", "./-"},
		{"-", "./-"},
		{"-n", "./-n"},
		{"~root/x", "./~root/x"},
		{"|id", "./|id"},
		{"data:text/plain,x", "./data:text/plain,x"},
		{"php://stdin", "./php://stdin"},
		{"compress.zlib://x", "./compress.zlib://x"},
		{"stdin", "./stdin"},
	} {
		f := mcptest.NewFakeRunner()
		x, _ := newCtx(t, f)
		x.Paths = map[string]string{"app": "/srv/app"}
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &ExecuteFile{x}, `{"path":"`+tt.path+`","language":"php","code":"x"}`)
		if r.IsError || *f.Request.Env["CORRAL_FILE"] != tt.want {
			t.Errorf("%s: %q %q", tt.path, r.Text, *f.Request.Env["CORRAL_FILE"])
		}
	}
}
