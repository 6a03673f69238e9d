package runtimes

import (
	"strconv"
	"strings"
	"testing"

	"corral/job"
)

// repository has a library for each language.
var repository = map[string]string{
	"lib.js":                        "module.exports = 'js'",
	"lib.mjs":                       "export const word = 'mjs'",
	"node_modules/pkg/package.json": `{"main": "index.js"}`,
	"node_modules/pkg/index.js":     "module.exports = 'package'",
	"node_modules/esm/package.json": `{"type": "module", "exports": "./index.js"}`,
	"node_modules/esm/index.js":     "export default 'module'",
	"types.ts":                      "export const word: string = 'ts'",
	"app/__init__.py":               "",
	"app/store.py":                  "word = 'py'",
	"venv/pyvenv.cfg":               "home = /usr/bin\n",
	"go.mod":                        "module example.com/app\n\ngo 1.20\n",
	"internal/x/x.go":               "package x\n\nconst Word = \"go\"\n",
	"lib.go":                        "package app\n\nconst Word = \"root\"\n",
	"lib.h":                         "#define WORD \"h\"\n",
	"lib.rb":                        "WORD = 'rb'",
	"lib.sh":                        "word=sh",
	"Lib.pm":                        "package Lib; our $word = 'pm'; 1;",
	"lib.php":                       "<?php $word = 'php';",
	"lib.R":                         "word <- 'R'",
	"lib.ex":                        "defmodule Lib do\n  def word, do: \"ex\"\nend",
	"lib.rs":                        "pub const WORD: &str = \"rs\";",
	"data":                          "data",
}

// TestSeesRepository checks that code in each language sees the files of the working directory as its own: modules by relative paths,
// installed packages, and data.
func TestSeesRepository(t *testing.T) {
	b := newBench(t)
	for name, content := range repository {
		b.write(name, content, 0o644)
	}
	for minor := 6; minor < 20; minor++ { // a virtual environment of the version that is installed
		b.write("venv/lib/python3."+strconv.Itoa(minor)+"/site-packages/installed.py", "word = 'installed'", 0o644)
	}
	for _, tt := range []struct{ runtime, name, code, out string }{
		{"node", "require", `console.log(require("./lib"), require("pkg"), require("fs").readFileSync("data", "utf8"))`, "js package data\n"},
		{"node", "import", `import { word } from "./lib.mjs"; import esm from "esm"; console.log(word, esm)`, "mjs module\n"},
		{"node", "import and require", `const { word } = await import("./lib.mjs"); console.log(word, require("./lib.js"))`, "mjs js\n"},
		{"node", "import in a function", `import("./lib.mjs").then(m => console.log(m.word, require("./lib")))`, "mjs js\n"},
		{"node", "missing", `try { require("./none") } catch (e) { console.log(e.code) }`, "MODULE_NOT_FOUND\n"},
		{"typescript", "import", `import { word } from "./types"; import lib from "./lib.js"; console.log(word as string, lib)`, "ts js\n"},
		{"typescript", "import and await", `import { word } from "./lib.mjs"; console.log(word as string, (await import("esm")).default)`, "mjs module\n"},
		{"python", "import", "from app import store\nprint(store.word, open('data').read())", "py data\n"},
		{"python", "virtual environment", "import installed, sys\nprint(installed.word, sys.argv[1:], __name__)", "installed [] __main__\n"},
		{"shell", "source", `. ./lib.sh; echo $word "$(cat data)"`, "sh data\n"},
		{"go", "internal package", "package main\nimport \"example.com/app/internal/x\"\nimport \"example.com/app\"\nfunc main() { println(x.Word, app.Word) }", ""},
		{"c", "include", "#include <stdio.h>\n#include \"lib.h\"\nint main(void) { puts(WORD); return 0; }", "h\n"},
		{"cpp", "include", "#include <cstdio>\n#include \"lib.h\"\nint main() { puts(WORD); }", "h\n"},
		{"ruby", "require_relative", `require_relative "lib"; require "./lib"; puts WORD, DATA.read` + "\n__END__\nend", "rb\nend\n"},
		{"perl", "use lib", `use lib "."; use Lib; print "$Lib::word\n"`, "pm\n"},
		{"php", "require", `<?php require "lib.php"; require __DIR__ . "/lib.php"; echo "$word\n";`, "php\n"},
		{"r", "source", `source("lib.R"); cat(word, readLines("data", warn = FALSE), "\n")`, "R data \n"},
		{"elixir", "require_file", `Code.require_file("lib.ex"); IO.puts(apply(Lib, :word, []))`, "ex\n"},
		{"rust", "mod", `mod lib; fn main() { println!("{} {}", lib::WORD, include_str!("data")); }`, "rs data\n"},
	} {
		t.Run(tt.runtime+" "+tt.name, func(t *testing.T) {
			if _, missing := b.installed.Choose(tt.runtime, "", nil); missing != "" {
				t.Skip(missing)
			}
			d := b.run(try{runtime: tt.runtime, code: &tt.code})
			if d.out != tt.out || d.Status != job.Success || tt.runtime == "go" && d.err != "go root\n" {
				t.Errorf("%q, want %q; %s", d.out, tt.out, d.err)
			}
		})
	}
}

// TestPythonTraceback checks that the launcher of Python is in no traceback.
func TestPythonTraceback(t *testing.T) {
	b := newBench(t)
	for code, want := range map[string]string{
		"def f():\n    return 1 / 0\nf()": "Traceback (most recent call last):\n  File \"/tmp/job/code.py\", line 3, in <module>\n    f()\n  File \"/tmp/job/code.py\", line 2, in f\n",
		"x = (":                           "  File \"/tmp/job/code.py\", line 1\n    x = (\n",
		"raise SystemExit('over')":        "over\n",
	} {
		d := b.run(try{runtime: "python", code: &code})
		if !strings.HasPrefix(d.err, want) || strings.Contains(d.err, "launch") || d.ExitCode != 1 {
			t.Errorf("%q: exit code %d, %q", code, d.ExitCode, d.err)
		}
	}
}
