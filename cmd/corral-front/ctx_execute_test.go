package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A ctxReply is the reply of a ctx tool.
type ctxReply struct {
	text, raw string
	isError   bool
	Status    string
	ExitCode  *int
	Code      string
	JobID     string
	Text      string
}

// ctx calls a ctx tool.
func (h *host) ctx(tool string, arguments object) *ctxReply {
	h.t.Helper()
	return h.ctxReply(h.must("tools/call", object{"name": tool, "arguments": arguments}))
}

func (h *host) ctxReply(a *response) *ctxReply {
	h.t.Helper()
	r := &ctxReply{isError: a.Result.IsError, raw: string(a.Result.Structured)}
	if err := json.Unmarshal(a.Result.Structured, r); err != nil || len(a.Result.Content) != 1 {
		h.t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	r.text = a.Result.Content[0].Text
	if r.Code == "" && r.Text != r.text {
		h.t.Errorf("the text is %q, but %q in structuredContent", r.text, r.Text)
	}
	return r
}

// languages are the twelve languages. Each has a program that prints hello, and one that prints the length of the file
// that it was given, in bytes or characters, which are the same here, and its path.
var languages = []struct{ name, hello, file string }{
	{"javascript", `console.log("hello")`, `console.log(FILE_CONTENT.length + " " + file_path)`},
	{"typescript", `const s: string = "hello"; console.log(s)`, `const n: number = FILE_CONTENT.length; console.log(n + " " + file_path)`},
	{"python", `print("hello")`, `print(len(FILE_CONTENT), file_path)`},
	{"shell", `echo hello`, `printf '%d %s\n' $((${#FILE_CONTENT} + 1)) "$file_path"`}, // a shell variable has no trailing newline
	{"ruby", `puts "hello"`, `puts "#{FILE_CONTENT.length} #{file_path}"`},
	{"go", `fmt.Println("hello")`, `fmt.Println(len(FILE_CONTENT), file_path)`},
	{"rust", `fn main() { println!("hello") }`, `println!("{} {}", FILE_CONTENT.len(), file_path);`},
	{"php", `echo "hello\n";`, `echo strlen($FILE_CONTENT), " $file_path\n";`},
	{"perl", `print "hello\n";`, `use strict; print length($FILE_CONTENT), " $file_path\n";`},
	{"r", `cat("hello\n")`, `cat(nchar(FILE_CONTENT), " ", file_path, "\n", sep = "")`},
	{"elixir", `IO.puts("hello")`, `IO.puts("#{String.length(file_content)} #{file_path}")`},
	{
		"csharp", `class P { static void Main() { System.Console.WriteLine("hello"); } }`,
		`class P { static void Main() { System.Console.WriteLine(FILE_CONTENT.Length + " " + file_path); } }`,
	},
}

// compiles are the languages that compile first, which takes seconds.
var compiles = map[string]bool{"typescript": true, "go": true, "rust": true, "elixir": true, "csharp": true}

// TestCtxLanguages checks that installed languages run a program, alone and on a file, and that the reply for others
// says what to install.
func TestCtxLanguages(t *testing.T) {
	var tools []string
	if goProgram, err := exec.LookPath("go"); err == nil {
		tools = append(tools, sandboxtest.GoCache(t, goProgram))
	}
	p, _, h := servedWith(t, "runtime: {max_duration: 5m}\n", tools...)
	const path = `some dir/it's "odd" $(x) #{y} \n.txt`
	p.file(t, path, "first\n\"second\"\n")
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			// Compiling takes seconds. The tests of package runtimes run these languages, too.
			every := sandboxtest.Soak() || !compiles[l.name]
			file := object{"path": path, "language": l.name, "code": l.file}
			first := h.ctx("ctx_execute_file", file)
			if first.Code == "UNSUPPORTED" {
				if !strings.HasPrefix(first.text, "Runtime error: ") || !strings.Contains(first.text, " not available. Install") || !first.isError {
					t.Errorf("got %q", first.text)
				}
				t.Skip(first.text)
			}
			if want := "15 " + path + "\n"; first.text != want || first.isError {
				t.Errorf("got %q, want %q", first.text, want)
			}
			if !every {
				return
			}
			r := h.ctx("ctx_execute", object{"language": l.name, "code": l.hello})
			if r.text != "hello\n" || r.isError || r.Status != "success" {
				t.Errorf("got %q", r.text)
			}
			r = h.ctx("ctx_execute_file", object{"path": "nowhere", "language": l.name, "code": l.file})
			if !r.isError || r.Status != "failure" || r.ExitCode == nil || *r.ExitCode == 0 || !strings.Contains(r.text, "nowhere") {
				t.Errorf("without the file: %q", r.text)
			}
		})
	}
}

// TestCtxFileContained checks that files outside of the repository cannot be read.
func TestCtxFileContained(t *testing.T) {
	p, _, h := served(t, "")
	secret := filepath.Join(p.dir, "secret")
	if err := os.WriteFile(secret, []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.file(t, "x", "")
	if err := os.Symlink("../secret", filepath.Join(p.repo, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../secret", "link", secret, "/proc/1/root" + secret, "x/../../secret"} {
		r := h.ctx("ctx_execute_file", object{"path": path, "language": "shell", "code": `echo "$FILE_CONTENT"`})
		if !r.isError || strings.Contains(r.raw+r.text, "hunter2") {
			t.Errorf("%s: %q", path, r.text)
		}
	}
	if r := h.ctx("ctx_execute_file", object{"path": "../secret", "language": "shell", "code": "true"}); r.Code != "INVALID_REQUEST" {
		t.Errorf("got %q", r.text)
	}
}

// TestCtxMemory checks that the reply of a job that reached a limit names the limit.
func TestCtxMemory(t *testing.T) {
	_, _, h := served(t, "defaults: {memory: 64MiB}\n")
	r := h.ctx("ctx_execute", object{"language": "python", "code": "print('out', flush=True)\nx = bytearray(1 << 30)\nx[::4096] = b'x' * (1 << 18)"})
	if want := "Killed by SIGKILL (memory limit 64 MiB reached)\n\nstdout:\nout\n\n\nstderr:\n"; r.text != want || !r.isError {
		t.Errorf("got %q", r.text)
	}
}
