package runtimes

import (
	"path/filepath"
	"strconv"
	"strings"
)

// globals defines in ES modules what only CommonJS modules have, for code that uses both require(…) and top-level await.
const globals = `const { createRequire } = require("module");
for (const [name, value] of Object.entries({
	require: createRequire(__filename), __dirname, __filename: require("path").join(__dirname, "FILE"),
})) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
`

// withGlobals adds globals.cjs for code in a file.
func (p *plan) withGlobals(file string) {
	p.file("globals.cjs", strings.Replace(globals, "FILE", file, 1))
}

// launcher runs code.js. Node decides whether the code is a CommonJS module, by compiling it as one, which does not
// execute it. Newer versions of Node detect it themselves, but differently in each version.
const launcher = `"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm"), { runMain } = require("module");
let file = path.join(__dirname, "code.js");
try {
	const code = fs.readFileSync(file, "utf8").replace(/^#!.*/, "");
	vm.compileFunction(code, ["exports", "require", "module", "__filename", "__dirname"]);
} catch {
	fs.renameSync(file, file = path.join(__dirname, "code.mjs"));
	require("./globals.cjs");
}
process.argv[1] = file;
runMain();
`

func node(p *plan) {
	p.file("code.js", p.source)
	p.withGlobals("code.mjs")
	p.file("launch.cjs", launcher)
	p.exec(append([]string{p.Path, p.in("launch.cjs")}, p.args...)...)
}

// stripTypes is an option of Node since version 22.6.
const stripTypes = "--experimental-strip-types"

// typescript runs code with a program that strips types. Such programs treat .ts as a CommonJS module, which has no
// top-level await, and .mts as an ES module.
func typescript(p *plan) {
	file := "code.ts"
	if strings.Contains(p.source, "await") || strings.Contains(p.source, "import.meta") {
		file = "code.mts"
	}
	p.file(file, p.source)
	p.withGlobals(file)
	argv := []string{p.Path}
	if p.way.program == "node" {
		argv = append(argv, stripTypes, "--disable-warning=ExperimentalWarning")
	}
	p.exec(append(append(argv, "--require", p.in("globals.cjs"), p.in(file)), p.args...)...)
}

// tsNode makes ts-node ignore configuration files and skip type checks, like the other programs. It converts all modules
// to CommonJS, so top-level await is not available.
func tsNode(p *plan) {
	p.file("code.ts", p.source)
	p.exec(append([]string{
		p.Path, "--skip-project", "--transpile-only", "--compiler-options", `{"module":"commonjs","esModuleInterop":true}`, p.in("code.ts"),
	}, p.args...)...)
}

// withNode prepares programs that are scripts of Node, which they look up in PATH.
func withNode(s *search, c *Choice) string { return with("node")(s, c) }

// stripsTypes refuses a Node that is not known to be new enough to run TypeScript.
func stripsTypes(s *search, c *Choice) string {
	const major, minor = 22, 6
	have := nodeVersion(c.Real)
	if have[0] > major || have[0] == major && have[1] >= minor {
		return ""
	}
	return "it is not known to be version 22.6 or later"
}

// nodeVersion reads the version from the headers that come with Node, or from the name of the directory that a version
// manager unpacked it to. Unknown parts are 0.
func nodeVersion(real string) [2]int {
	dir := filepath.Dir(filepath.Dir(real)) // real is DIR/bin/node
	var v [2]int
	text := readSmall(dir, "include/node/node_version.h")
	for i, name := range []string{"NODE_MAJOR_VERSION", "NODE_MINOR_VERSION"} {
		_, rest, _ := strings.Cut(text, "#define "+name+" ")
		number, _, _ := strings.Cut(rest, "\n")
		v[i], _ = strconv.Atoi(strings.TrimSpace(number))
	}
	if v[0] == 0 {
		v = leadingVersion(strings.TrimPrefix(filepath.Base(dir), "v"))
	}
	return v
}
