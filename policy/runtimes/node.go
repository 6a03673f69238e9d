package runtimes

import (
	"path/filepath"
	"strconv"
	"strings"
)

// globals has define, which defines in ES modules what only CommonJS modules have, for code that uses both require(…) and top-level
// await. It makes modules that the code requests by a relative path or a package's name be looked for in the working directory,
// where the code would be if it were a file of the repository: those of require(…) at once, those of import with hook. Older
// versions of Node run hooks in a thread of their own, which takes some 20 ms, so only code that imports has one.
const globals = `const Module = require("module"), path = require("path"), { pathToFileURL } = require("url");
const file = path.join(__dirname, "FILE"), here = path.join(process.cwd(), "FILE"), resolve = Module._resolveFilename;
const code = parent => parent && path.dirname(parent.filename || "") === __dirname && /^code[.]/.test(path.basename(parent.filename));
Module._resolveFilename = function (request, parent, ...rest) {
	if (code(parent)) parent = Object.assign(new Module(here, null), { filename: here, paths: Module._nodeModulePaths(process.cwd()) });
	return resolve.call(this, request, parent, ...rest);
};
const data = { from: pathToFileURL(path.join(__dirname, "code.")).href, to: pathToFileURL(here).href };
exports.hook = () => {
	const move = context => context.parentURL?.startsWith(data.from) ? { ...context, parentURL: data.to } : context;
	if (Module.registerHooks) Module.registerHooks({ resolve: (name, context, next) => next(name, move(context)) });
	else if (Module.register) Module.register(pathToFileURL(path.join(__dirname, "hooks.mjs")), { data });
};
exports.define = () => {
	for (const [name, value] of Object.entries({
		require: Module.createRequire(here), __dirname, __filename: file,
	})) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
};
`

// hooks are the hooks for versions of Node that run them in a thread of their own.
const hooks = `let data;
export function initialize(given) { data = given; }
export function resolve(name, context, next) {
	return next(name, context.parentURL?.startsWith(data.from) ? { ...context, parentURL: data.to } : context);
}
`

// withGlobals adds globals.cjs for code in a file, and what it needs.
func (p *plan) withGlobals(file, more string) {
	p.file("globals.cjs", strings.ReplaceAll(globals, "FILE", file)+more)
	p.file("hooks.mjs", hooks)
}

// launcher runs code.js. Node decides whether the code is a CommonJS module, by compiling it as one, which does not
// execute it. Newer versions of Node detect it themselves, but differently in each version.
const launcher = `"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm"), { runMain } = require("module");
let file = path.join(__dirname, "code.js"), imports = true;
try {
	const code = fs.readFileSync(file, "utf8").replace(/^#!.*/, "");
	imports = /\bimport\b/.test(code);
	vm.compileFunction(code, ["exports", "require", "module", "__filename", "__dirname"]);
} catch {
	fs.renameSync(file, file = path.join(__dirname, "code.mjs"));
}
const { define, hook } = require("./globals.cjs");
if (file.endsWith(".mjs")) define();
if (imports) hook();
process.argv[1] = file;
runMain();
`

func node(p *plan) {
	p.file("code.js", p.source)
	p.withGlobals("code.mjs", "")
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
	p.withGlobals(file, "exports.define();\nexports.hook();\n")
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
