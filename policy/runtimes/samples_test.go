package runtimes

// A sample has the programs of one runtime, for the tests that every language must pass.
type sample struct {
	Runtime string
	// Talk prints each argument in brackets, then its input, then "grüße, 世界", prints "oops" to standard error, and exits
	// with 7.
	Talk string
	// Wrong does not compile, or ends with an uncaught error; the output must contain Word.
	Wrong, Word string
	// Endless runs forever.
	Endless string
}

// compiled are the runtimes that compile before they run.
var compiled = map[string]bool{
	"typescript": true, "go": true, "java": true, "kotlin": true, "rust": true, "c": true, "cpp": true, "csharp": true, "elixir": true,
}

// samples has one row per runtime, in the order of Runtimes.
var samples = []sample{
	{
		"node", `const fs = require("fs");
for (const a of process.argv.slice(2)) console.log("[" + a + "]");
process.stdout.write(fs.readFileSync(0, "utf8"));
console.log("grüße, 世界"); console.error("oops"); process.exitCode = 7;`,
		`throw new Error("nobody")`, "nobody", `for (;;);`,
	},
	{
		"typescript", `import { readFileSync } from "node:fs";
enum Code { seven = 7 }
for (const a of process.argv.slice(2) as string[]) console.log(` + "`[${a}]`" + `);
process.stdout.write(readFileSync(0, "utf8"));
console.log("grüße, 世界"); console.error("oops"); process.exitCode = Code.seven;`,
		`const x: number = ; `, "code.ts:1", `for (;;);`,
	},
	{
		"python", `import sys
for a in sys.argv[1:]: print(f"[{a}]")
sys.stdout.write(sys.stdin.read())
print("grüße, 世界"); print("oops", file=sys.stderr); sys.exit(7)`,
		`print(nobody)`, "NameError", `while True: pass`,
	},
	{
		"shell", `for a in "$@"; do echo "[$a]"; done; cat; echo "grüße, 世界"; echo oops >&2; exit 7`,
		`if then`, "syntax error", `while :; do :; done`,
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
	},
	{
		"kotlin", `fun main(args: Array<String>) {
	for (a in args) println("[$a]")
	System.` + "`in`" + `.copyTo(System.out)
	println("grüße, 世界"); System.err.println("oops"); System.exit(7)
}`,
		`fun main() { nobody() }`, "unresolved reference", `fun main() { while (true) ; }`,
	},
	{
		"rust", `use std::io::{self, Write};
fn main() {
    for a in std::env::args().skip(1) { println!("[{}]", a); }
    io::copy(&mut io::stdin(), &mut io::stdout()).unwrap();
    println!("grüße, 世界"); io::stdout().flush().unwrap(); eprintln!("oops"); std::process::exit(7);
}`,
		`fn main() { nobody(); }`, "cannot find function", `fn main() { loop {} }`,
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
	},
	{
		"cpp", `#include <iostream>
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) std::cout << "[" << argv[i] << "]\n";
	if (std::cin.peek() != EOF) std::cout << std::cin.rdbuf();
	std::cout << "grüße, 世界" << std::endl; std::cerr << "oops\n"; return 7;
}`,
		`int main() { return nobody; }`, "not declared", `int main() { volatile int i = 0; for (;;) i = 1; }`,
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
	},
	{
		"ruby", `ARGV.each { |a| puts "[#{a}]" }
print STDIN.read
puts "grüße, 世界"; warn "oops"; exit 7`,
		`nobody`, "NameError", `loop {}`,
	},
	{
		"php", `<?php foreach (array_slice($argv, 1) as $a) echo "[$a]\n";
echo file_get_contents("php://stdin"), "grüße, 世界\n"; fwrite(STDERR, "oops\n"); exit(7);`,
		`<?php nobody();`, "nobody()", `<?php while (true);`,
	},
	{
		"perl", `print "[$_]\n" for @ARGV; print <STDIN>; print "grüße, 世界\n"; print STDERR "oops\n"; exit 7`,
		`use strict; $nobody = 1;`, "Global symbol", `1 while 1`,
	},
	{
		"r", `for (a in commandArgs(trailingOnly = TRUE)) cat(sprintf("[%s]\n", a))
cat(paste0(readLines(file("stdin")), "\n"), sep = "")
cat("grüße, 世界\n"); message("oops"); quit(status = 7)`,
		`nobody()`, "could not find function", `while (TRUE) {}`,
	},
	{
		"elixir", `for a <- System.argv(), do: IO.puts("[#{a}]")
case IO.read(:all) do :eof -> nil; text -> IO.write(text) end
IO.puts("grüße, 世界"); IO.puts(:stderr, "oops"); System.halt(7)`,
		`nobody()`, "undefined function", `defmodule F do def f, do: f() end
F.f()`,
	},
}
