package runtimes

import (
	"testing"

	"corral/job"
)

// TestModules checks that Node runs code as a CommonJS or an ES module, whichever it is, and likewise TypeScript.
func TestModules(t *testing.T) {
	b := newBench(t)
	b.write("lib.cjs", "module.exports = 'lib'", 0o644)
	b.write("package.json", `{"type": "module"}`, 0o644) // it must not affect the code, which is not in the repository
	for _, tt := range []struct{ name, code, out string }{
		{"require", `const { sep } = require("path"); console.log(sep)`, "/\n"},
		{"import", `import { sep } from "node:path"; console.log(sep)`, "/\n"},
		{"dynamic import", `import("node:path").then(m => console.log(m.sep))`, "/\n"},
		{"top-level await", `const { sep } = await import("node:path"); console.log(sep)`, "/\n"},
		{"top-level await with require", `const fs = require("fs"); console.log(await fs.promises.readFile("lib.cjs", "utf8"))`, "module.exports = 'lib'\n"},
		{"import with require", `import fs from "fs"; const { sep } = require("path"); console.log(sep, typeof fs.readFileSync)`, "/ function\n"},
		{"await in a function", `async function f() { return await 1 } f().then(console.log)`, "1\n"},
		{"for await", `async function* g() { yield 1 } for await (const x of g()) console.log(x)`, "1\n"},
		{"words in strings", "console.log('import x from \"y\"', `export ${1}`, /export default/.test('await'))", "import x from \"y\" export 1 false\n"},
		{"module.exports", `module.exports = { a: 1 }; console.log(typeof module, typeof exports)`, "object object\n"},
		{"export", `export const a = 1; export default a; console.log(a)`, "1\n"},
		{"import.meta", `console.log(import.meta.url.startsWith("file:///tmp/job/code.m"))`, "true\n"},
		{"directory", `console.log(__dirname, require("fs").existsSync("lib.cjs"))`, "/tmp/job true\n"},
		{"file with await", `await 1; console.log(require("fs").existsSync(__filename), __dirname)`, "true /tmp/job\n"},
		{"of the repository", `console.log(require(process.cwd() + "/lib.cjs"))`, "lib\n"},
		{"a script for a shell", "#!/usr/bin/env node\nconsole.log(1)", "1\n"},
		{"nothing", "", ""},
	} {
		for _, runtime := range []string{"node", "typescript"} {
			if d := b.run(try{runtime: runtime, code: &tt.code}); d.out != tt.out || d.err != "" || d.Status != job.Success {
				t.Errorf("%s, %s: %q, want %q; %s", runtime, tt.name, d.out, tt.out, d.err)
			}
		}
	}
}

// TestMainModule checks that the launcher is invisible to CommonJS code.
func TestMainModule(t *testing.T) {
	b := newBench(t)
	code := `console.log(require.main === module, __filename, process.argv.slice(1), process.argv.length, module.id, this === exports);
if (process.argv[2]) return;
const { spawnSync } = require("child_process");
process.stdout.write(spawnSync(process.execPath, [__filename, "child"]).stdout)`
	want := "true /tmp/job/code.js [ '/tmp/job/code.js' ] 2 . true\ntrue /tmp/job/code.js [ '/tmp/job/code.js', 'child' ] 3 . true\n"
	if d := b.run(try{runtime: "node", code: &code}); d.out != want {
		t.Errorf("%q, want %q; %s", d.out, want, d.err)
	}
}
