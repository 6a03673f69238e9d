package runtimes

import (
	"fmt"
	"path/filepath"
	"strings"

	"corral/internal/lazyregexp"
	"corral/job"
)

// heap returns options that limit a JVM's heap to half of the job's memory. By default a JVM uses a quarter of the
// machine's memory, which ignores the limit, and would be killed for garbage that it has not collected yet.
func (p *plan) heap() []string {
	memory := p.Memory
	if memory <= 0 {
		memory = job.Defaults().Memory
	}
	return []string{fmt.Sprintf("-XX:MaxRAM=%d", memory), "-XX:MaxRAMPercentage=50"}
}

func javaCommand(p *plan) { p.exec(append(append([]string{p.Path}, p.heap()...), p.args...)...) }

func java(p *plan) {
	run := append([]string{p.Path}, p.heap()...)
	if !p.old {
		p.file("Main.java", p.source)
		p.exec(append(append(run, p.in("Main.java")), p.args...)...)
		return
	}
	pkg, class := mainClass(p.source)
	p.file(class+".java", p.source)
	p.then([]string{p.with["javac"], "-encoding", "UTF-8", "-d", p.dir(), p.in(class + ".java")},
		append(run[:1], "-Xmx"+fmt.Sprint(p.maxHeap()), "-cp", p.dir(), pkg+class))
}

func (p *plan) maxHeap() int64 {
	if p.Memory > 0 {
		return p.Memory / 2
	}
	return job.Defaults().Memory / 2
}

var (
	javaNoise  = lazyregexp.New(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)
	javaPublic = lazyregexp.New(`\bpublic\s+(?:(?:final|abstract|strictfp)\s+)*(?:class|interface|enum)\s+(\w+)`)
	javaClass  = lazyregexp.New(`\b(?:class|interface|enum)\s+(\w+)`)
	javaMain   = lazyregexp.New(`\bstatic\s+(?:final\s+)?void\s+main\b`)
	javaIn     = lazyregexp.New(`\bpackage\s+([\w.]+)\s*;`)
)

// mainClass returns the package, followed by a dot, and the name of the class to launch. That is the public class, whose
// file must have its name, or else the last class before the function main.
func mainClass(source string) (pkg, class string) {
	source = javaNoise().ReplaceAllString(source, " ")
	if m := javaIn().FindStringSubmatch(source); m != nil {
		pkg = m[1] + "."
	}
	if m := javaPublic().FindStringSubmatch(source); m != nil {
		return pkg, m[1]
	}
	if at := javaMain().FindStringIndex(source); at != nil {
		source = source[:at[0]]
	}
	if all := javaClass().FindAllStringSubmatch(source, -1); len(all) > 0 {
		return pkg, all[len(all)-1][1]
	}
	return pkg, "Main"
}

// withJDK refuses a Java without a compiler, which is needed to run code.
func withJDK(s *search, c *Choice) string {
	home := filepath.Dir(filepath.Dir(c.Real)) // c.Real is HOME/bin/java
	_, rest, _ := strings.Cut("\n"+readSmall(home, "release"), "\nJAVA_VERSION=\"")
	v := leadingVersion(rest)
	c.old = v[0] == 1 // for example "1.8.0_292"; 9 and 10 are long unsupported
	if v[0] == 9 || v[0] == 10 {
		c.old = true
	}
	for _, dir := range []string{filepath.Join(home, "bin"), filepath.Join(filepath.Dir(home), "bin")} {
		if javac := filepath.Join(dir, "javac"); s.usable(javac) {
			c.with["javac"] = javac
			return ""
		}
	}
	return "it has no javac: it is a JRE, not a JDK"
}

// withJava prepares Kotlin's launchers, which look for java in JAVA_HOME and in PATH.
func withJava(s *search, c *Choice) string {
	if why := with("java")(s, c); why != "" {
		return why
	}
	c.env = append(c.env[:len(c.env):len(c.env)], "JAVA_HOME="+filepath.Dir(filepath.Dir(s.real(c.with["java"]))))
	return ""
}

func withKotlinc(s *search, c *Choice) string {
	if why := with("kotlinc")(s, c); why != "" {
		return why
	}
	return withJava(s, c)
}

// kotlinMain tells programs from scripts. A match in a comment or a string does little harm: the program fails with a
// message that main is missing.
var kotlinMain = lazyregexp.New(`(?m)^\s*(?:suspend\s+)?fun\s+main\s*\(`)

// kotlin compiles programs and runs scripts. -PrintWarnings silences the JVM about deprecated options that older
// compilers pass.
func kotlin(p *plan) {
	compiler := []string{p.Path, "-J-XX:-PrintWarnings"}
	if p.way.program == "kotlin" {
		compiler[0] = p.with["kotlinc"]
	}
	if !kotlinMain().MatchString(p.source) {
		p.file("code.kts", p.source)
		p.exec(append(append(compiler, "-script", p.in("code.kts"), "--"), p.args...)...)
		return
	}
	p.file("code.kt", p.source)
	jar := p.in("code.jar")
	p.then(append(compiler, p.in("code.kt"), "-include-runtime", "-d", jar),
		append(append([]string{p.with["java"]}, p.heap()...), "-jar", jar))
}
