package runtimes

// table has one row per runtime. A new runtime needs a row here, and one in samples_test.go. The test TestDocument writes the rest
// with -update.
var table = []Runtime{
	{
		Name: "node", File: "code.js", Debian: "nodejs", Version: version,
		Run:   "as a CommonJS module, or if it is not a valid one, as an ES module",
		Hello: `console.log("hello")`,
		ways:  []way{{program: "node", code: node}, {program: "bun", code: interpret("code.js")}},
	},
	{
		Name: "typescript", File: "code.ts", Elsewhere: "npm install --global tsx", Version: version,
		Run:   "types are removed, not checked; code with `await` or `import.meta` is an ES module",
		Hello: `const word: string = "hello"; console.log(word)`,
		ways: []way{
			{program: "tsx", prepare: withNode, code: typescript},
			{program: "bun", code: interpret("code.ts")},
			{program: "ts-node", prepare: withNode, code: tsNode},
			{program: "node", prepare: stripsTypes, code: typescript, args: func(p *plan) {
				p.exec(append([]string{p.Path, stripTypes}, p.args...)...)
			}},
		},
	},
	{
		Name: "python", File: "code.py", Debian: "python3", Version: version,
		Run:   "`python3 code.py`",
		Hello: `print("hello")`,
		// Output must not be lost when a job is ended at its deadline, and imports must not leave files in the
		// repository.
		env:  []string{"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"},
		ways: []way{{program: "python3", code: python}, {program: "python", code: python}},
	},
	{
		Name: "shell", File: "code.sh", Debian: "bash", Version: version,
		Run:   "`bash code.sh`",
		Hello: `echo hello`,
		ways:  []way{{program: "bash", prepare: withCache, code: shell}, {program: "sh", prepare: withCache, code: shell}},
	},
	{
		Name: "go", File: "code.go", Debian: "golang-go", Version: []string{"version"},
		Run:   "`go build`, then the program",
		Hello: "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }",
		env:   []string{"GOTOOLCHAIN=local"},
		ways:  []way{{program: "go", prepare: withCache, code: golang, args: goCommand}},
	},
	{
		Name: "java", File: "Main.java", Debian: "default-jdk-headless", Version: []string{"-version"},
		Run:   "Java 11 and later launch the one file; before, `javac`, then `java`",
		Hello: "class Main { public static void main(String[] args) { System.out.println(\"hello\"); } }",
		ways:  []way{{program: "java", prepare: withJDK, code: java, args: javaCommand}},
	},
	{
		Name: "kotlin", File: "code.kt", Debian: "kotlin", Version: []string{"-version"},
		Run:   "with a function `main`: `kotlinc`, then `java`; without, as a script",
		Hello: `fun main() { println("hello") }`,
		ways: []way{
			{program: "kotlinc", prepare: withJava, code: kotlin},
			{program: "kotlin", prepare: withKotlinc, code: kotlin},
		},
	},
	{
		Name: "rust", File: "code.rs", Debian: "rustc", Version: version,
		Run:   "`rustc` with the edition 2021, then the program",
		Hello: `fn main() { println!("hello"); }`,
		ways:  []way{{program: "rustc", prepare: with("cc"), code: rust}},
	},
	{
		Name: "c", File: "code.c", Debian: "gcc libc6-dev", Version: version,
		Run:   "`gcc … -lm`, then the program",
		Hello: "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }",
		ways:  compilers(compile("code.c", "-iquote", ".", "-o", binary, "code.c", "-lm"), "gcc", "cc", "clang"),
	},
	{
		Name: "cpp", File: "code.cpp", Debian: "g++", Version: version,
		Run:   "`g++`, then the program",
		Hello: "#include <iostream>\nint main() { std::cout << \"hello\\n\"; }",
		ways:  compilers(compile("code.cpp", "-iquote", ".", "-o", binary, "code.cpp"), "g++", "c++", "clang++"),
	},
	{
		Name: "csharp", File: "code.cs", Debian: "mono-mcs mono-runtime libmono-system-core4.0-cil", Version: version,
		Run:   "`dotnet-script`; or a compiler, then `mono` or `dotnet`",
		Hello: "class Program { static void Main() { System.Console.WriteLine(\"hello\"); } }",
		env:   []string{"DOTNET_CLI_TELEMETRY_OPTOUT=1", "DOTNET_NOLOGO=1", "DOTNET_SKIP_FIRST_TIME_EXPERIENCE=1"},
		ways: []way{
			{program: "dotnet-script", prepare: with("dotnet"), code: interpret("code.csx")},
			{program: "csc", prepare: with("mono"), code: mono}, // if Mono is installed, a csc in PATH is Mono's
			{program: "csc", prepare: with("dotnet"), code: dotnet},
			{program: "mcs", prepare: with("mono"), code: mono},
		},
	},
	{
		Name: "ruby", File: "code.rb", Debian: "ruby", Version: version,
		Run:   "`ruby code.rb`",
		Hello: `puts "hello"`,
		ways:  []way{{program: "ruby", code: ruby}},
	},
	{
		Name: "php", File: "code.php", Debian: "php-cli", Version: version,
		Run:   "`php code.php`; code without `<?` is PHP from the start",
		Hello: `<?php echo "hello\n";`,
		ways:  []way{{program: "php", code: php}},
	},
	{
		Name: "perl", File: "code.pl", Debian: "perl", Version: version,
		Run:   "`perl code.pl`",
		Hello: `print "hello\n";`,
		ways:  []way{{program: "perl", code: interpret("code.pl")}},
	},
	{
		Name: "r", File: "code.R", Debian: "r-base-core", Version: version,
		Run:   "`Rscript code.R`",
		Hello: `cat("hello\n")`,
		ways:  []way{{program: "Rscript", code: interpret("code.R")}},
	},
	{
		Name: "elixir", File: "code.exs", Debian: "elixir", Version: []string{"--short-version"},
		Run:   "`elixir code.exs`",
		Hello: `IO.puts("hello")`,
		ways:  []way{{program: "elixir", code: interpret("code.exs")}},
	},
}

// version is the version option of most programs.
var version = []string{"--version"}

// compilers returns ways that differ only in the program's name.
func compilers(code func(*plan), names ...string) []way {
	var list []way
	for _, name := range names {
		list = append(list, way{program: name, code: code})
	}
	return list
}

// Runtimes returns the names of all runtimes, in the order of the documentation.
func Runtimes() []string {
	var names []string
	for i := range table {
		names = append(names, table[i].Name)
	}
	return names
}

// Lookup returns the runtime with the given name.
func Lookup(name string) (Runtime, bool) {
	for i := range table {
		if table[i].Name == name {
			return table[i], true
		}
	}
	return Runtime{}, false
}
