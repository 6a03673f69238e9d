package ctxtools

import (
	"strings"

	"corral/internal/lazyregexp"
)

// pathVariable is the environment variable with the path of the file. Code in any language can read it, and the path never
// becomes part of the program text, so it needs no quoting.
const pathVariable = "CORRAL_FILE"

// A reader is a language's code for reading the file and the way to insert it into the caller's code. Where the language
// permits, the lines of the caller's code keep their numbers.
type reader struct {
	// front reads the file into variables, in one line.
	front string
	// place inserts front into code; nil puts it in front, on the same line.
	place func(front, code string) string
}

// If the file cannot be read the program fails, with a message on standard error and an exit code other than 0.
var readers = map[string]reader{
	"javascript": {front: scriptFront, place: scriptPlace},
	"typescript": {front: scriptFront, place: scriptPlace},
	"python": {
		front: `import os as _corral; file_path = _corral.environ["CORRAL_FILE"]; FILE_CONTENT = open(file_path, encoding="utf-8", errors="replace", newline="").read(); del _corral`,
		place: pythonPlace,
	},
	"shell": {
		front: `file_path=$CORRAL_FILE; FILE_CONTENT=$(cat -- "$file_path") || exit 1; `,
	},
	"ruby": {
		front: `FILE_CONTENT = File.read(ENV.fetch("CORRAL_FILE")); def file_path; ENV.fetch("CORRAL_FILE"); end; `,
		place: podPlace("\n"),
	},
	"go":   {place: goPlace},
	"rust": {place: rustPlace},
	"php": {
		front: `$file_path = getenv("CORRAL_FILE"); $FILE_CONTENT = @file_get_contents($file_path); if ($FILE_CONTENT === false) { fwrite(STDERR, "cannot read $file_path\n"); exit(1); } `,
		place: phpPlace,
	},
	"perl": {
		front: `our $file_path = $ENV{CORRAL_FILE}; our $FILE_CONTENT = do { local $/; open(my $f, "<", $file_path) or die "$file_path: $!\n"; my $text = <$f>; defined $text ? $text : "" }; `,
		place: podPlace("\n# line 1\n"),
	},
	"r": {
		front: `file_path <- Sys.getenv("CORRAL_FILE"); FILE_CONTENT <- readChar(file_path, file.size(file_path), useBytes = TRUE); `,
	},
	"elixir": {
		// In Elixir a name with a capital initial is not a variable.
		front: `file_path = System.fetch_env!("CORRAL_FILE"); file_content = File.read!(file_path); _ = {file_path, file_content}; `,
	},
	"csharp": {place: csharpPlace},
}

// WithFile returns code with variables for the content and the path of the file.
func (l languageEntry) WithFile(code string) string {
	r := readers[l.Name]
	if r.place == nil {
		return r.front + code
	}
	return r.place(r.front, code)
}

// scriptFront sets properties of globalThis, so that code may declare variables of the same names.
const scriptFront = `globalThis.file_path = process.env.CORRAL_FILE; globalThis.FILE_CONTENT = require("fs").readFileSync(globalThis.file_path, "utf8"); `

// scriptPlace turns a #! line into a comment: it is only valid at the beginning of a script.
func scriptPlace(front, code string) string {
	if strings.HasPrefix(code, "#!") {
		code = "//" + code
	}
	return front + code
}

// future matches imports from __future__, which must precede all other statements in Python.
var future = lazyregexp.New(`(?m)^from[ \t]+__future__[ \t]+import[ \t]+(?:\([^)]*\)|[^\n#;]*)`)

// pythonPlace puts front on a line of its own, because a compound statement cannot follow another statement on its line.
func pythonPlace(front, code string) string {
	if all := future().FindAllStringIndex(code, -1); all != nil {
		at := all[len(all)-1][1]
		return code[:at] + "; " + front + code[at:]
	}
	return front + "\n" + code
}

// podPlace is for languages in which a line that begins with = starts embedded documentation, and # a comment or pragma.
func podPlace(between string) func(front, code string) string {
	return func(front, code string) string {
		if strings.HasPrefix(code, "=") || strings.HasPrefix(code, "#") {
			return front + between + code
		}
		return front + code
	}
}

// goPlace adds package variables, and the imports that they need under names that code will not use.
func goPlace(_, code string) string {
	g := wrapGo(code)
	g.imports = append(g.imports, `corral_os "os"`, `corral_fmt "fmt"`)
	g.end += `
var file_path = corral_os.Getenv("CORRAL_FILE")

var FILE_CONTENT = func() string {
	b, err := corral_os.ReadFile(file_path)
	if err != nil {
		corral_fmt.Fprintln(corral_os.Stderr, err)
		corral_os.Exit(1)
	}
	return string(b)
}()
`
	return g.String()
}

var rustMain = lazyregexp.New(`(?m)^[ \t]*(?:pub[ \t]+)?(?:async[ \t]+)?fn[ \t]+main\b`)

// rustPlace adds statics that can be used like a &str. Code without fn main becomes the body of main.
func rustPlace(_, code string) string {
	if !rustMain().MatchString(code) {
		code = "fn main() { " + code + "\n}"
	}
	return code + rustEnd
}

// rustEnd reads the file on first use, because a static's initializer is evaluated at compile time.
const rustEnd = `
#[allow(non_camel_case_types, dead_code)]
pub struct corral_text(std::sync::atomic::AtomicPtr<String>, fn() -> String);
impl std::ops::Deref for corral_text {
    type Target = String;
    fn deref(&self) -> &String {
        use std::sync::atomic::Ordering::SeqCst;
        if self.0.load(SeqCst).is_null() {
            let text = Box::into_raw(Box::new((self.1)()));
            let _ = self.0.compare_exchange(std::ptr::null_mut(), text, SeqCst, SeqCst);
        }
        unsafe { &*self.0.load(SeqCst) }
    }
}
impl std::fmt::Display for corral_text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&**self) }
}
#[allow(non_snake_case)]
fn corral_path() -> String { std::env::var("CORRAL_FILE").unwrap_or_default() }
fn corral_read() -> String {
    match std::fs::read(corral_path()) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(why) => { eprintln!("{}: {}", corral_path(), why); std::process::exit(1) }
    }
}
#[allow(dead_code)]
pub static FILE_CONTENT: corral_text = corral_text(std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()), corral_read);
#[allow(dead_code, non_upper_case_globals)]
pub static file_path: corral_text = corral_text(std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()), corral_path);
`

// phpFirst matches what must precede all other statements: declare and namespace.
var phpFirst = lazyregexp.New(`(?is)^\s*<\?php\b(?:\s|//[^\n]*\n|#[^\n]*\n|/\*.*?\*/)*(?:declare\s*\([^)]*\)\s*;)?(?:(?:\s|//[^\n]*\n|#[^\n]*\n|/\*.*?\*/)*namespace\s+[\w\\]+\s*;)?`)

func phpPlace(front, code string) string {
	if at := phpFirst().FindStringIndex(code); at != nil {
		return code[:at[1]] + " " + front + code[at[1]:]
	}
	if !strings.Contains(code, "<?") {
		return "<?php " + front + code
	}
	return "<?php " + front + "?>" + code
}

var csharpMain = lazyregexp.New(`\bstatic\s+(?:async\s+)?[\w.<>]+\s+Main\s*\(`)

// csharpPlace adds static members that code can use without naming their class. A script without Main gets variables instead.
func csharpPlace(_, code string) string {
	if !csharpMain().MatchString(code) {
		return `string file_path = System.Environment.GetEnvironmentVariable("CORRAL_FILE"); ` +
			`string FILE_CONTENT = System.IO.File.ReadAllText(file_path); ` + code
	}
	return "using static CorralFile; " + code + `
static class CorralFile
{
	public static readonly string file_path = System.Environment.GetEnvironmentVariable("CORRAL_FILE");
	public static readonly string FILE_CONTENT = System.IO.File.ReadAllText(file_path);
}
`
}
