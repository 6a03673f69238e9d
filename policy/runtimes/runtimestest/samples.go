// Package runtimestest has programs in each language, for the tests that every language must pass.
package runtimestest

// A Sample has the programs of one runtime.
type Sample struct {
	Runtime string
	// Talk prints each argument in brackets, then its input, then "grüße, 世界", prints "oops" to standard error, and exits
	// with 7.
	Talk string
	// Wrong does not compile, or ends with an uncaught error; the output must contain Word.
	Wrong, Word string
	// Endless runs forever.
	Endless string
	// Snoop prints its environment, that of every process it can name, and FOUND if the file in its first argument exists. Its last
	// line says that it reached its end.
	Snoop string
}

// Compiled are the runtimes that compile before they run.
var Compiled = map[string]bool{
	"typescript": true, "go": true, "java": true, "kotlin": true, "rust": true, "c": true, "cpp": true, "csharp": true, "elixir": true,
}

// Samples has one row per runtime, in the order of package runtimes.
var Samples = []Sample{
	{
		"node", `const fs = require("fs");
for (const a of process.argv.slice(2)) console.log("[" + a + "]");
process.stdout.write(fs.readFileSync(0, "utf8"));
console.log("grüße, 世界"); console.error("oops"); process.exitCode = 7;`,
		`throw new Error("nobody")`, "nobody", `for (;;);`,
		`const fs = require("fs");
console.log(JSON.stringify(process.env));
for (let n = 1; n < 300; n++) try { console.log(fs.readFileSync("/proc/" + n + "/environ", "latin1")) } catch {}
console.log(fs.existsSync(process.argv[2]) ? "FOUND" : "");
console.log("snooped");`,
	},
	{
		"typescript", `import { readFileSync } from "node:fs";
enum Code { seven = 7 }
for (const a of process.argv.slice(2) as string[]) console.log(` + "`[${a}]`" + `);
process.stdout.write(readFileSync(0, "utf8"));
console.log("grüße, 世界"); console.error("oops"); process.exitCode = Code.seven;`,
		`const x: number = ; `, "code.ts:1", `for (;;);`,
		`import * as fs from "fs";
const all: string = JSON.stringify(process.env);
console.log(all);
for (let n: number = 1; n < 300; n++) try { console.log(fs.readFileSync("/proc/" + n + "/environ", "latin1")) } catch {}
console.log(fs.existsSync(process.argv[2]) ? "FOUND" : "");
console.log("snooped");`,
	},
	{
		"python", `import sys
for a in sys.argv[1:]: print(f"[{a}]")
sys.stdout.write(sys.stdin.read())
print("grüße, 世界"); print("oops", file=sys.stderr); sys.exit(7)`,
		`print(nobody)`, "NameError", `while True: pass`,
		`import os, sys, glob
print(dict(os.environ))
for f in glob.glob("/proc/*/environ") + ["/proc/%d/environ" % n for n in range(1, 300)]:
    try: print(open(f, "rb").read())
    except OSError: pass
print("FOUND" if os.path.exists(sys.argv[1]) else "")
print("snooped")`,
	},
	{
		"shell", `for a in "$@"; do echo "[$a]"; done; cat; echo "grüße, 世界"; echo oops >&2; exit 7`,
		`if then`, "syntax error", `while :; do :; done`,
		`env; export -p; cat /proc/*/environ /proc/*/task/*/environ /proc/*/cmdline; ls -l /proc/*/cwd /proc/*/root /proc/*/fd/
cat /proc/1/environ /proc/$PPID/environ; [ -e "$1" ] && echo FOUND; echo; echo snooped`,
	},
	{
		"go", `package main
import ("fmt"; "io"; "os")
func main() {
	for _, a := range os.Args[1:] { fmt.Printf("[%s]\n", a) }
	io.Copy(os.Stdout, os.Stdin)
	fmt.Println("grüße, 世界"); fmt.Fprintln(os.Stderr, "oops"); os.Exit(7)
}`,
		`package main
func main() { nobody() }`, "undefined: nobody", `package main
func main() { for {} }`,
		`package main
import ("fmt"; "os"; "path/filepath")
func main() {
	fmt.Println(os.Environ())
	files, _ := filepath.Glob("/proc/*/environ")
	for _, f := range files { b, _ := os.ReadFile(f); fmt.Printf("%s\n", b) }
	if _, err := os.Stat(os.Args[1]); err == nil { fmt.Println("FOUND") }
	fmt.Println("snooped")
}`,
	},
	{
		"java", `import java.io.*;
public class Talk {
	public static void main(String[] args) throws IOException {
		for (String a : args) System.out.println("[" + a + "]");
		System.in.transferTo(System.out);
		new PrintStream(System.out, true, "UTF-8").println("grüße, 世界"); System.err.println("oops"); System.exit(7);
	}
}`,
		`class Main { public static void main(String[] a) { nobody(); } }`, "cannot find symbol",
		`class Main { public static void main(String[] a) { while (true) ; } }`,
		`import java.nio.file.*;
public class Main { public static void main(String[] a) throws Exception {
	System.out.println(System.getenv()); System.out.println(System.getProperties());
	for (int n = 1; n < 300; n++)
		try { System.out.println(new String(Files.readAllBytes(Path.of("/proc/" + n + "/environ")))); } catch (Exception e) {}
	if (Files.exists(Path.of(a[0]))) System.out.println("FOUND");
	System.out.println("snooped");
} }`,
	},
	{
		"kotlin", `fun main(args: Array<String>) {
	for (a in args) println("[$a]")
	System.` + "`in`" + `.copyTo(System.out)
	println("grüße, 世界"); System.err.println("oops"); System.exit(7)
}`,
		`fun main() { nobody() }`, "unresolved reference", `fun main() { while (true) ; }`,
		`import java.io.File
fun main(args: Array<String>) {
	println(System.getenv())
	for (n in 1..300) try { println(File("/proc/$n/environ").readText()) } catch (e: Exception) {}
	if (File(args[0]).exists()) println("FOUND")
	println("snooped")
}`,
	},
	{
		"rust", `use std::io::{self, Write};
fn main() {
    for a in std::env::args().skip(1) { println!("[{}]", a); }
    io::copy(&mut io::stdin(), &mut io::stdout()).unwrap();
    println!("grüße, 世界"); io::stdout().flush().unwrap(); eprintln!("oops"); std::process::exit(7);
}`,
		`fn main() { nobody(); }`, "cannot find function", `fn main() { loop {} }`,
		`use std::{env, fs, path::Path};
fn main() {
	for (k, v) in env::vars_os() { println!("{:?}={:?}", k, v); }
	for n in 1..300 { if let Ok(b) = fs::read(format!("/proc/{}/environ", n)) { println!("{}", String::from_utf8_lossy(&b)); } }
	if Path::new(&env::args().nth(1).unwrap()).exists() { println!("FOUND"); }
	println!("snooped");
}`,
	},
	{
		"c", `#include <stdio.h>
#include <math.h>
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) printf("[%s]\n", argv[i]);
	int c; while ((c = getchar()) != EOF) putchar(c);
	puts("grüße, 世界"); fputs("oops\n", stderr); return (int)sqrt(argc * 0 + 49.0);
}`,
		`int main(void) { return nobody; }`, "undeclared", `int main(void) { for (;;) ; }`,
		cSnoop,
	},
	{
		"cpp", `#include <iostream>
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) std::cout << "[" << argv[i] << "]\n";
	if (std::cin.peek() != EOF) std::cout << std::cin.rdbuf();
	std::cout << "grüße, 世界" << std::endl; std::cerr << "oops\n"; return 7;
}`,
		`int main() { return nobody; }`, "not declared", `int main() { volatile int i = 0; for (;;) i = 1; }`,
		cSnoop,
	},
	{
		"csharp", `using System;
class Talk {
	static int Main(string[] args) {
		foreach (var a in args) Console.WriteLine("[" + a + "]");
		Console.Write(Console.In.ReadToEnd());
		Console.WriteLine("grüße, 世界"); Console.Error.WriteLine("oops"); return 7;
	}
}`,
		`class P { static void Main() { Nobody(); } }`, "CS0103", `class P { static void Main() { while (true) ; } }`,
		csharpSnoop,
	},
	{
		"ruby", `ARGV.each { |a| puts "[#{a}]" }
print STDIN.read
puts "grüße, 世界"; warn "oops"; exit 7`,
		`nobody`, "NameError", `loop {}`,
		`p ENV.to_h
Dir.glob("/proc/*/environ").each { |f| begin; p File.binread(f); rescue SystemCallError; end }
puts "FOUND" if File.exist?(ARGV[0])
puts "snooped"`,
	},
	{
		"php", `<?php foreach (array_slice($argv, 1) as $a) echo "[$a]\n";
echo file_get_contents("php://stdin"), "grüße, 世界\n"; fwrite(STDERR, "oops\n"); exit(7);`,
		`<?php nobody();`, "nobody()", `<?php while (true);`,
		`<?php var_dump(getenv(), $_ENV, $_SERVER);
foreach (glob("/proc/*/environ") as $f) var_dump(@file_get_contents($f));
if (file_exists($argv[1])) echo "FOUND";
echo "\nsnooped\n";`,
	},
	{
		"perl", `print "[$_]\n" for @ARGV; print <STDIN>; print "grüße, 世界\n"; print STDERR "oops\n"; exit 7`,
		`use strict; $nobody = 1;`, "Global symbol", `1 while 1`,
		`print "$_=$ENV{$_}\n" for keys %ENV;
for my $f (glob("/proc/*/environ")) { if (open(my $h, "<", $f)) { local $/; my $x = <$h>; print $x // "", "\n"; } }
print "FOUND\n" if -e $ARGV[0];
print "snooped\n";`,
	},
	{
		"r", `for (a in commandArgs(trailingOnly = TRUE)) cat(sprintf("[%s]\n", a))
cat(paste0(readLines(file("stdin")), "\n"), sep = "")
cat("grüße, 世界\n"); message("oops"); quit(status = 7)`,
		`nobody()`, "could not find function", `while (TRUE) {}`,
		`print(Sys.getenv())
for (f in Sys.glob("/proc/*/environ")) try(print(rawToChar(setdiff(readBin(f, "raw", 1e6), as.raw(0)))), silent = TRUE)
if (file.exists(commandArgs(trailingOnly = TRUE)[1])) cat("FOUND")
cat("\nsnooped\n")`,
	},
	{
		"elixir", `for a <- System.argv(), do: IO.puts("[#{a}]")
case IO.read(:all) do :eof -> nil; text -> IO.write(text) end
IO.puts("grüße, 世界"); IO.puts(:stderr, "oops"); System.halt(7)`,
		`nobody()`, "undefined function", `defmodule F do def f, do: f() end
F.f()`,
		`IO.inspect(System.get_env(), limit: :infinity)
for f <- Path.wildcard("/proc/*/environ") do IO.inspect(File.read(f), limit: :infinity, printable_limit: :infinity) end
if File.exists?(hd(System.argv())), do: IO.puts("FOUND")
IO.puts("snooped")`,
	},
}

const cSnoop = `#include <stdio.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
	for (char **e = environ; *e; e++) puts(*e);
	for (int n = 1; n < 300; n++) {
		char name[64]; int c;
		snprintf(name, sizeof name, "/proc/%d/environ", n);
		FILE *f = fopen(name, "r");
		if (!f) continue;
		while ((c = getc(f)) != EOF) putchar(c ? c : '\n');
		fclose(f);
	}
	if (access(argv[1], F_OK) == 0) puts("FOUND");
	puts("snooped");
	return 0;
}`

const csharpSnoop = `using System; using System.IO;
class Program { static void Main(string[] a) {
	foreach (System.Collections.DictionaryEntry e in Environment.GetEnvironmentVariables()) Console.WriteLine(e.Key + "=" + e.Value);
	for (int n = 1; n < 300; n++) try { Console.WriteLine(File.ReadAllText("/proc/" + n + "/environ")); } catch (Exception) {}
	if (File.Exists(a[0])) Console.WriteLine("FOUND");
	Console.WriteLine("snooped");
} }`
