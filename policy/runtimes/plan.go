package runtimes

import (
	"path/filepath"
	"slices"
	"strings"

	"corral/job"
)

// Plan returns what to run: the argument list, whose first element is a path; the files that the job needs; and the
// runtime's variables, including PATH, which take precedence over variables of the same name. With a nil code, the
// program itself runs with args; otherwise the code does.
func (c Choice) Plan(code *string, args []string) (argv []string, files []job.File, env []string) {
	p := &plan{Choice: c, args: args, env: slices.Clone(c.env)}
	p.env = append(p.env, "LANG=C.UTF-8", "PATH="+c.paths)
	if c.Runtime == "go" {
		p.env = append(p.env, "GOCACHE="+c.goCache())
	}
	switch {
	case code != nil:
		p.source = *code
		c.way.code(p)
	case c.way.args != nil:
		c.way.args(p)
	default:
		p.exec(append([]string{c.Path}, args...)...)
	}
	return p.argv, p.files, p.env
}

// binary is the name of a compiled program.
const binary = "program"

// in returns the path of a file in the job's private directory.
func (p *plan) in(name string) string { return filepath.Join(p.dir(), name) }

// file adds a file in the job's private directory.
func (p *plan) file(name, content string) {
	p.files = append(p.files, job.File{Path: p.in(name), Content: content})
}

func (p *plan) exec(argv ...string) { p.argv = argv }

// shell runs a script of sh(1) with the job's arguments. Values inserted into the script must be quoted.
func (p *plan) shell(script string) {
	p.exec(append([]string{"/bin/sh", "-c", script, "sh"}, p.args...)...)
}

// quote returns words as quoted words of sh(1).
func quote(words ...string) string {
	var list []string
	for _, w := range words {
		list = append(list, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return strings.Join(list, " ")
}

// then runs compiler, then program in its place. The compiler must not read the program's input or write to its output.
func (p *plan) then(compiler, program []string) {
	p.shell(quote(compiler...) + " </dev/null >&2 && exec " + quote(program...) + ` "$@"`)
}

// interpret returns a plan for an interpreter: the program, the file, the arguments.
func interpret(file string) func(*plan) {
	return func(p *plan) {
		p.file(file, p.source)
		p.exec(append([]string{p.Path, p.in(file)}, p.args...)...)
	}
}

// compile returns a plan for a compiler, which is run with args, and then the compiled program. In args, the name of the
// file and binary are replaced by their paths.
func compile(file string, args ...string) func(*plan) {
	return func(p *plan) {
		p.file(file, p.source)
		compiler := []string{p.Path}
		for _, a := range args {
			if a == file || a == binary {
				a = p.in(a)
			}
			compiler = append(compiler, a)
		}
		p.then(compiler, []string{p.in(binary)})
	}
}

// php adds an opening tag to code that has none.
func php(p *plan) {
	if !strings.Contains(p.source, "<?") {
		p.source = "<?php " + p.source
	}
	p.file("code.php", p.source)
	p.shell(p.beside() + "exec " + quote(p.Path, p.in("code.php")) + ` "$@"`)
}

// mono compiles for Mono, and runs the result with it.
func mono(p *plan) {
	p.file("code.cs", p.source)
	p.then([]string{p.Path, "-nologo", "-out:" + p.in("code.exe"), p.in("code.cs")}, []string{p.with["mono"], p.in("code.exe")})
}

// dotnet compiles for .NET. The runtime requires a version in a file beside the program: here, the latest one installed.
func dotnet(p *plan) {
	p.file("code.cs", p.source)
	p.file("code.runtimeconfig.json",
		`{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"6.0.0"},"rollForward":"LatestMajor"}}`)
	p.then([]string{p.Path, "-nologo", "-out:" + p.in("code.dll"), p.in("code.cs")}, []string{p.with["dotnet"], p.in("code.dll")})
}
