package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// snoops are programs that print their environment, that of every process they can name, and whether the socket in
// their first argument exists. The last line says that the program reached its end.
func snoops() map[string]string {
	return map[string]string{
		"shell": `env; export -p; cat /proc/*/environ /proc/*/task/*/environ /proc/*/cmdline; ls -l /proc/*/cwd /proc/*/root /proc/*/fd/
cat /proc/1/environ /proc/$PPID/environ; [ -e "$1" ] && echo FOUND; echo; echo snooped`,
		"python": `import os, sys, glob
print(dict(os.environ))
for f in glob.glob("/proc/*/environ") + ["/proc/%d/environ" % n for n in range(1, 300)]:
    try: print(open(f, "rb").read())
    except OSError: pass
print("FOUND" if os.path.exists(sys.argv[1]) else "")
print("snooped")`,
		"node": `const fs = require("fs");
console.log(JSON.stringify(process.env));
for (let n = 1; n < 300; n++) try { console.log(fs.readFileSync("/proc/" + n + "/environ", "latin1")) } catch {}
console.log(fs.existsSync(process.argv[2]) ? "FOUND" : "");
console.log("snooped");`,
		"typescript": `import * as fs from "fs";
const all: string = JSON.stringify(process.env);
console.log(all);
for (let n: number = 1; n < 300; n++) try { console.log(fs.readFileSync("/proc/" + n + "/environ", "latin1")) } catch {}
console.log(fs.existsSync(process.argv[2]) ? "FOUND" : "");
console.log("snooped");`,
		"perl": `print "$_=$ENV{$_}\n" for keys %ENV;
for my $f (glob("/proc/*/environ")) { if (open(my $h, "<", $f)) { local $/; my $x = <$h>; print $x // "", "\n"; } }
print "FOUND\n" if -e $ARGV[0];
print "snooped\n";`,
		"ruby": `p ENV.to_h
Dir.glob("/proc/*/environ").each { |f| begin; p File.binread(f); rescue SystemCallError; end }
puts "FOUND" if File.exist?(ARGV[0])
puts "snooped"`,
		"php": `<?php var_dump(getenv(), $_ENV, $_SERVER);
foreach (glob("/proc/*/environ") as $f) var_dump(@file_get_contents($f));
if (file_exists($argv[1])) echo "FOUND";
echo "\nsnooped\n";`,
		"r": `print(Sys.getenv())
for (f in Sys.glob("/proc/*/environ")) try(print(rawToChar(setdiff(readBin(f, "raw", 1e6), as.raw(0)))), silent = TRUE)
if (file.exists(commandArgs(trailingOnly = TRUE)[1])) cat("FOUND")
cat("\nsnooped\n")`,
		"elixir": `IO.inspect(System.get_env(), limit: :infinity)
for f <- Path.wildcard("/proc/*/environ") do IO.inspect(File.read(f), limit: :infinity, printable_limit: :infinity) end
if File.exists?(hd(System.argv())), do: IO.puts("FOUND")
IO.puts("snooped")`,
		"go": `package main
import ("fmt"; "os"; "path/filepath")
func main() {
	fmt.Println(os.Environ())
	files, _ := filepath.Glob("/proc/*/environ")
	for _, f := range files { b, _ := os.ReadFile(f); fmt.Printf("%s\n", b) }
	if _, err := os.Stat(os.Args[1]); err == nil { fmt.Println("FOUND") }
	fmt.Println("snooped")
}`,
		"java": `import java.nio.file.*;
public class Main { public static void main(String[] a) throws Exception {
	System.out.println(System.getenv()); System.out.println(System.getProperties());
	for (int n = 1; n < 300; n++) try { System.out.println(new String(Files.readAllBytes(Path.of("/proc/" + n + "/environ")))); } catch (Exception e) {}
	if (Files.exists(Path.of(a[0]))) System.out.println("FOUND");
	System.out.println("snooped");
} }`,
		"kotlin": `import java.io.File
fun main(args: Array<String>) {
	println(System.getenv())
	for (n in 1..300) try { println(File("/proc/$n/environ").readText()) } catch (e: Exception) {}
	if (File(args[0]).exists()) println("FOUND")
	println("snooped")
}`,
		"rust": `use std::{env, fs, path::Path};
fn main() {
	for (k, v) in env::vars_os() { println!("{:?}={:?}", k, v); }
	for n in 1..300 { if let Ok(b) = fs::read(format!("/proc/{}/environ", n)) { println!("{}", String::from_utf8_lossy(&b)); } }
	if Path::new(&env::args().nth(1).unwrap()).exists() { println!("FOUND"); }
	println!("snooped");
}`,
		"c":      cSnoop,
		"cpp":    cSnoop,
		"csharp": csharpSnoop,
	}
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

// TestSecrets checks that no runtime finds the secrets in the server's environment, or an agent's socket.
func TestSecrets(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	agent := filepath.Join(p.dir, "agent.sock")
	l, err := net.Listen("unix", agent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(agent, 0o777); err != nil {
		t.Fatal(err)
	}
	d := daemon(t)
	// Redaction must not hide a secret that was found.
	cmd := p.front("mcp", "--config", p.config(t, "output: {redact: false}\n"), "--supervisor", d.Socket)
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+agent)
	h := connect(t, cmd)
	all := snoops()
	// A compiled program sees what its compiler saw: except in a soak run, one of them stands for all.
	slow := []string{"typescript", "java", "kotlin", "rust", "cpp", "csharp", "elixir", "go"}
	for _, runtime := range job.Runtimes() {
		if slices.Contains(slow, runtime) && !sandboxtest.Soak() {
			continue
		}
		t.Run(runtime, func(t *testing.T) {
			code := all[runtime]
			if code == "" {
				t.Fatal("no program")
			}
			o := h.execute(object{
				"runtime": runtime, "code": code, "args": []string{agent}, "outputMode": "summary", "maxResponseLines": 1000,
				"timeoutMs": 60_000,
			})
			if o.Message != "" {
				t.Skip(o.Message)
			}
			if out := o.out(); o.Status != "success" || !strings.Contains(out, "snooped") || o.ArtifactHandle == nil {
				t.Fatalf("%s: the program did not reach its end: %s %s", o.Status, out, *o.StderrSummary)
			}
			for _, word := range []string{"hunter2", "SSH_AUTH_SOCK", "SECRET_TOKEN", "AWS_", "FOUND"} {
				if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{word}}); found.MatchStatus != "noMatchFallback" {
					t.Errorf("%s is there: %+v", word, found.Excerpts)
				}
			}
			if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{"TMPDIR"}}); found.MatchStatus != "matched" {
				t.Error("the program did not see its own environment")
			}
		})
	}
}
