package runtimes

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestPlan checks the plans of ways that no test can run on this machine, and of a few that others run.
func TestPlan(t *testing.T) {
	f := newFake(t,
		"usr/bin/bun", "usr/bin/ts-node", "usr/lib/v22.6.0/bin/node", "usr/bin/node -> /usr/lib/v22.6.0/bin/node", "usr/bin/dotnet-script", "usr/bin/dotnet",
		"usr/bin/csc", "usr/bin/cc", "usr/bin/clang++", "usr/bin/kotlin", "usr/bin/kotlinc", "usr/lib/jvm/x/bin/java",
		"usr/lib/jvm/x/bin/javac", "usr/bin/java -> /usr/lib/jvm/x/bin/java", "usr/bin/python", "usr/bin/sh", "usr/bin/php", "usr/bin/rustc",
	)
	i := f.find(nil, nil)
	usr := f.at("usr/bin") + "/"
	const links = `ln -s "$PWD"/* "$PWD"/.[!.]* '/tmp/job' 2>/dev/null; `
	for _, tt := range []struct {
		runtime, executable, code string
		argv, files               string // names of files
	}{
		{"node", "bun", "x", usr + "bun|/tmp/job/code.js", "code.js"},
		{"typescript", "bun", "x", usr + "bun|/tmp/job/code.ts", "code.ts"},
		{
			"typescript", "ts-node", "x",
			usr + `ts-node|--skip-project|--transpile-only|--compiler-options|{"module":"commonjs","esModuleInterop":true}|/tmp/job/code.ts`, "code.ts",
		},
		{
			"typescript", "node", "x", usr + "node|--experimental-strip-types|--disable-warning=ExperimentalWarning|--require|/tmp/job/globals.cjs|/tmp/job/code.ts",
			"code.ts globals.cjs hooks.mjs",
		},
		{
			"typescript", "node", "await x", usr + "node|--experimental-strip-types|--disable-warning=ExperimentalWarning|--require|/tmp/job/globals.cjs|/tmp/job/code.mts",
			"code.mts globals.cjs hooks.mjs",
		},
		{"csharp", "dotnet-script", "x", usr + "dotnet-script|/tmp/job/code.csx", "code.csx"},
		{
			"csharp", "csc", "x", "/bin/sh|-c|'" + usr + "csc' '-nologo' '-out:/tmp/job/code.dll' '/tmp/job/code.cs' </dev/null >&2 && exec '" +
				usr + `dotnet' '/tmp/job/code.dll' "$@"|sh`, "code.cs code.runtimeconfig.json",
		},
		{
			"c", "", "x", "/bin/sh|-c|'" + usr + "cc' '-iquote' '.' '-o' '/tmp/job/program' '/tmp/job/code.c' '-lm' </dev/null >&2 && exec '/tmp/job/program' \"$@\"|sh",
			"code.c",
		},
		{
			"cpp", "", "x", "/bin/sh|-c|'" + usr + "clang++' '-iquote' '.' '-o' '/tmp/job/program' '/tmp/job/code.cpp' </dev/null >&2 && exec '/tmp/job/program' \"$@\"|sh",
			"code.cpp",
		},
		{
			"rust", "", "x", "/bin/sh|-c|" + links + "'" + usr + "rustc' '--edition' '2021' '-o' '/tmp/job/program' '/tmp/job/code.rs' </dev/null >&2 && exec '/tmp/job/program' \"$@\"|sh",
			"code.rs",
		},
		{"kotlin", "kotlin", "x", usr + "kotlinc|-J-XX:-PrintWarnings|-script|/tmp/job/code.kts|--", "code.kts"},
		{"java", "", "x", usr + "java|-XX:MaxRAM=2147483648|-XX:MaxRAMPercentage=50|/tmp/job/Main.java", "Main.java"},
		{"python", "", "x", usr + "python|/tmp/job/launch.py", "code.py launch.py"},
		{"php", "", "x", "/bin/sh|-c|" + links + "exec '" + usr + "php' '/tmp/job/code.php' \"$@\"|sh", "code.php"},
	} {
		c, missing := i.Choose(tt.runtime, tt.executable, nil)
		if missing != "" {
			t.Errorf("%s: %s", tt.runtime, missing)
			continue
		}
		args := []string{"", "a b", "--", "'$(x)"}
		argv, files, env := c.Plan(&tt.code, args)
		var names []string
		for _, file := range files {
			name, ok := strings.CutPrefix(file.Path, Dir+"/")
			if !ok || strings.Contains(name, "/") || len(names) == 0 && file.Content != tt.code && tt.runtime != "php" {
				t.Errorf("%s: %+v", tt.runtime, file)
			}
			names = append(names, name)
		}
		if want := append(strings.Split(tt.argv, "|"), args...); !slices.Equal(argv, want) || strings.Join(names, " ") != tt.files {
			t.Errorf("%s, %s:\n%q, want\n%q; %q", tt.runtime, tt.executable, argv, want, names)
		}
		if !slices.Contains(env, "LANG=C.UTF-8") || !slices.Contains(env, "PATH="+i.Path()) {
			t.Errorf("%s: %q", tt.runtime, env)
		}
	}
}

// TestPlanOfArguments checks that without code the program just gets the arguments.
func TestPlanOfArguments(t *testing.T) {
	i := newFake(t, "usr/bin/bash", "usr/bin/gcc", "usr/bin/go", "usr/lib/jvm/x/bin/java", "usr/lib/jvm/x/bin/javac").find(nil, nil)
	for _, tt := range []struct{ runtime, want string }{
		{"shell", "a|b c"}, {"c", "a|b c"}, {"go", "a|b c"}, {"java", "-XX:MaxRAM=1048576|-XX:MaxRAMPercentage=50|a|b c"},
	} {
		c, missing := i.Choose(tt.runtime, "", nil)
		c.Memory = 1 << 20
		argv, files, _ := c.Plan(nil, []string{"a", "b c"})
		if missing != "" || strings.Join(argv, "|") != c.Path+"|"+tt.want || files != nil {
			t.Errorf("%s: %q, %v, %s", tt.runtime, argv, files, missing)
		}
	}
}

// TestPlanShared checks that a job that shares /tmp has its files elsewhere, and that the Go cache is in the home directory.
func TestPlanShared(t *testing.T) {
	i := newFake(t, "usr/bin/gcc", "usr/bin/go").find(nil, nil)
	code := "x"
	for _, shared := range []bool{false, true} {
		dir, cache := Dir, "GOCACHE=/tmp/job/go-build"
		if shared {
			dir, cache = SharedDir, "GOCACHE=/home/job/.cache/go-build"
		}
		for _, name := range []string{"c", "go"} {
			c, _ := i.Choose(name, "", nil)
			c.Shared = shared
			argv, files, env := c.Plan(&code, nil)
			if !strings.HasPrefix(files[0].Path, dir+"/") || !strings.Contains(strings.Join(argv, " "), dir+"/program") {
				t.Errorf("%s, shared %t: %q, %+v", name, shared, argv, files)
			}
			if slices.Contains(env, cache) != (name == "go") {
				t.Errorf("%s, shared %t: %q", name, shared, env)
			}
		}
	}
}

// TestPlanIsPure checks that a choice may be used again and concurrently.
func TestPlanIsPure(t *testing.T) {
	i := newFake(t, "usr/bin/python3").find(nil, nil)
	c, _ := i.Choose("python", "", nil)
	code := "1"
	args := make([]string, 1, 10)
	_, _, first := c.Plan(&code, args)
	_ = append(first, "X=1")
	if _, _, second := c.Plan(nil, args); !slices.Equal(first, second) || !slices.Equal(args, []string{""}) {
		t.Errorf("%q, then %q, of %q", first, second, args)
	}
	if r, _ := Lookup("python"); slices.ContainsFunc(r.env, func(s string) bool { return strings.HasPrefix(s, "LANG") }) {
		t.Errorf("the table was changed: %q", r.env)
	}
}

// TestQuote checks that a shell reads quoted words as the original ones.
func TestQuote(t *testing.T) {
	words := []string{"", "'", "a b", "$(id)`id`", `\`, "\n", "*", "-n", "ü'\"'"}
	out, err := exec.Command("/bin/sh", "-c", "printf '%s|' "+quote(words...)).Output()
	if want := strings.Join(words, "|") + "|"; err != nil || string(out) != want {
		t.Errorf("%q, want %q, %v", out, want, err)
	}
}

func TestMainClass(t *testing.T) {
	for source, want := range map[string]string{
		"class A { public static void main(String[] a) {} }":                                "A",
		"class A {} class B { static void main(String[] a) {} } class C {}":                 "B",
		"package x.y; class A {} public class P {}":                                         "x.y.P",
		"/* public class No {} */ // class No\nclass A { String s = \"public class No\"; }": "A",
		"public final class A {} class B { public static void main(String[] a) {} }":        "A",
		"interface I {} enum E { X; static final void main(String[] a) {} }":                "E",
		"":                                   "Main",
		"int x = 1;":                         "Main",
		"class A { char c = '\"'; } class B": "B",
	} {
		if pkg, class := mainClass(source); pkg+class != want {
			t.Errorf("%s: %s, want %s", source, pkg+class, want)
		}
	}
}

// TestCacheOwner checks that a prebuilt cache is used only if no stranger can write to it.
func TestCacheOwner(t *testing.T) {
	f := newFake(t, "usr/bin/go", "usr/lib/corral/go-build/00/", "home/tools/go-build/00/", "home/empty/go-build/")
	for _, tt := range []struct {
		name  string
		tools []string
		owner uint32 // owner of system files, in addition to the user of the tests
		want  string
	}{
		{"the system's", nil, 0, "usr/lib/corral/go-build"},
		{"a stranger's", nil, 1, ""},
		{"a toolchain's", []string{"home/tools"}, 1, "home/tools/go-build"},
		{"an empty one", []string{"home/empty"}, 0, "usr/lib/corral/go-build"},
	} {
		i := f.find(tt.tools, nil)
		i.c.places.host.owner += tt.owner
		c, missing := i.Choose("go", "", nil)
		if want := tt.want; missing != "" || want != "" && c.cache != f.at(want) || want == "" && c.cache != "" {
			t.Errorf("%s: %q, %s", tt.name, c.cache, missing)
		}
		argv, _, _ := c.Plan(new(string), nil)
		if seeded := strings.Contains(argv[2], "cp -rsn"); seeded != (tt.want != "") {
			t.Errorf("%s: %q", tt.name, argv)
		}
	}
}

// TestShellCache checks that only scripts that seem to compile Go begin with the prebuilt cache, in the directory where the go
// command looks, and that their code and arguments are as those of others.
func TestShellCache(t *testing.T) {
	f := newFake(t, "usr/bin/bash", "usr/lib/corral/go-build/00/")
	for code, want := range map[string]bool{
		"go test ./...": true, "cd x && GOFLAGS=-v go  build": true, "make -j2": true, "go vet": true,
		"echo go": false, "grep -r 'go func' .": false, "ago test": false, "go version": false, "cmake .": false,
	} {
		c, missing := f.find(nil, nil).Choose("shell", "", nil)
		argv, files, env := c.Plan(&code, []string{"a", "b"})
		if missing != "" || len(files) != 1 || files[0].Content != code || !slices.Equal(argv[len(argv)-2:], []string{"a", "b"}) ||
			slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GOCACHE=") }) {
			t.Errorf("%q: %q, %+v, %q, %s", code, argv, files, env, missing)
		}
		if got := strings.Contains(strings.Join(argv, " "), "cp -rsn '"+f.at("usr/lib/corral/go-build")+"/.' /home/job/.cache/go-build"); got != want {
			t.Errorf("%q: %q", code, argv)
		}
	}
}
