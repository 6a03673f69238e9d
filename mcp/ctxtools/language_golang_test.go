package ctxtools

import (
	"go/parser"
	"go/token"
	"testing"
)

// TestWrapGo: additions to Go code, which keep its line numbers.
func TestWrapGo(t *testing.T) {
	for _, tt := range []struct{ code, want string }{
		{"package main\n\nfunc main() {}", "package main\n\nfunc main() {}"},
		{"// a package\npackage main; func main() {}", "// a package\npackage main; func main() {}"},
		{`fmt.Println(1)`, "package main; import \"fmt\"; func main() { fmt.Println(1)\n}\n"},
		{"println(1) // fmt\n", "package main; func main() { println(1) // fmt\n\n}\n"},
		{"import \"os\"\nos.Exit(3)", "package main; import \"os\"\nfunc main() { os.Exit(3)\n}\n"},
		{"import (\n\t\"fmt\"\n\tm \"math\"\n)\n\nfmt.Println(m.Pi)", "package main; import (\n\t\"fmt\"\n\tm \"math\"\n)\nfunc main() { \nfmt.Println(m.Pi)\n}\n"},
		{"import \"os\"; import \"fmt\"; fmt.Println(os.Args)", "package main; import \"os\"; import \"fmt\";func main() {  fmt.Println(os.Args)\n}\n"},
		{"func main() { fmt.Println(2) }", "package main; import \"fmt\"; func main() { fmt.Println(2) }"},
		{"import \"fmt\"\nfunc main() { fmt.Println(2) }", "package main; import \"fmt\"\nfunc main() { fmt.Println(2) }"},
		{"type t struct{}\n\nfunc (t) main() {}\n\nfunc main() {}", "package main; type t struct{}\n\nfunc (t) main() {}\n\nfunc main() {}"},
		{"x := \"package main\"; _ = x", "package main; func main() { x := \"package main\"; _ = x\n}\n"},
		{"type t int\nvar x t = 1; _ = x", "package main; func main() { type t int\nvar x t = 1; _ = x\n}\n"},
		{"import \"os\"", "package main; import \"os\";func main() { \n}\n"},
	} {
		got := wrapGo(tt.code).String()
		if got != tt.want {
			t.Errorf("%q: got %q", tt.code, got)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "", got, 0); err != nil {
			t.Errorf("%q: %v", tt.code, err)
		}
	}
	// Syntax errors are left to the compiler, in the form in which the code was meant.
	if got := wrapGo("func main() { x := }").String(); got != "package main; func main() { x := }" {
		t.Errorf("got %q", got)
	}
}
