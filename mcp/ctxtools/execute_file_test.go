package ctxtools

import (
	"corral/internal/test/mcptest"
	"strings"
	"testing"
	"time"
)

// TestFileRequest: the path is passed in the environment, and is never part of the program.
func TestFileRequest(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(301, "refused")
	x, k := newCtx(t, f)
	const path = `a dir/it's "a" $(file).log`
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &ExecuteFile{x}, `{"path":"a dir/it's \"a\" $(file).log","language":"shell","code":"echo 1","timeout":"400","intent":"refused","cwd":"ignored"}`)
	q := f.Request
	if q.Tool != "ctx_execute_file" || q.Runtime != "shell" || q.Dir != "" || q.Limits.Wall != 400*time.Millisecond || len(q.Env) != 1 || *q.Env["CORRAL_FILE"] != path {
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

// TestWithFile: where each language's program reads the file.
func TestWithFile(t *testing.T) {
	const here = "<here>"
	for _, tt := range []struct{ language, code, want string }{
		{"javascript", "f()", "<here>f()"},
		{"javascript", "#!/usr/bin/env node\nf()", "<here>//#!/usr/bin/env node\nf()"},
		{"typescript", "f()", "<here>f()"},
		{"shell", "#!/bin/sh\nfor x; do :; done", "<here>#!/bin/sh\nfor x; do :; done"},
		{"python", "for x in y: pass", "<here>\nfor x in y: pass"},
		{"python", "\"doc\"\nfrom __future__ import annotations # why\nx", "\"doc\"\nfrom __future__ import annotations ; <here># why\nx"},
		{"python", "from __future__ import (a,\n b)\nx", "from __future__ import (a,\n b); <here>\nx"},
		{"ruby", "puts 1", "<here>puts 1"},
		{"ruby", "=begin\n=end", "<here>\n=begin\n=end"},
		{"perl", "print 1", "<here>print 1"},
		{"perl", "=pod\n\n=cut", "<here>\n# line 1\n=pod\n\n=cut"},
		{"r", "cat(1)", "<here>cat(1)"},
		{"elixir", "IO.puts(1)", "<here>IO.puts(1)"},
		{"php", "echo 1;", "<?php <here>echo 1;"},
		{"php", "<?php echo 1;", "<?php  <here>echo 1;"},
		{"php", "Hello <?= 1 ?>", "<?php <here>?>Hello <?= 1 ?>"},
		{"php", "<?php\n// c\ndeclare(strict_types=1);\nnamespace A\\B;\necho 1;", "<?php\n// c\ndeclare(strict_types=1);\nnamespace A\\B; <here>\necho 1;"},
		{"php", "<?php\n/* c */ namespace A;\necho 1;", "<?php\n/* c */ namespace A; <here>\necho 1;"},
	} {
		front := readers[tt.language].front
		if front == "" || strings.Contains(front, "\n") && tt.language != "php" {
			t.Errorf("%s: %q", tt.language, front)
		}
		got := strings.Replace(languageOf(languageName(tt.language)).withFile(tt.code), front, here, 1)
		if got != tt.want {
			t.Errorf("%s: %q: got %q, want %q", tt.language, tt.code, got, tt.want)
		}
	}
	for _, tt := range []struct{ language, code, front, back string }{
		{"go", "f()", `package main; import corral_os "os"; import corral_fmt "fmt"; func main() { f()`, "}()\n"},
		{"go", "package main\nfunc main() {}", "package main; import corral_os \"os\"; import corral_fmt \"fmt\"\nfunc main() {}", "}()\n"},
		{"rust", "f();", "fn main() { f();\n}", "corral_path);\n"},
		{"rust", "#![allow(x)]\npub fn main() {}", "#![allow(x)]\npub fn main() {}", "corral_path);\n"},
		{"csharp", "using X;\nclass P { public static async Task Main() {} }", "using static CorralFile; using X;\nclass", "}\n"},
		{"csharp", "Console.WriteLine(1);", "string file_path = ", "Console.WriteLine(1);"},
	} {
		if got := languageOf(languageName(tt.language)).withFile(tt.code); !strings.HasPrefix(got, tt.front) || !strings.HasSuffix(got, tt.back) {
			t.Errorf("%s: %q: got %q", tt.language, tt.code, got)
		}
	}
	for _, l := range languages {
		if _, ok := readers[l.name]; !ok {
			t.Errorf("%s has no reader", l.name)
		}
	}
}
