package ctxtools

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// A goSource is a Go program in parts. Additions are made on the lines of the caller's code, so that its line numbers stay.
type goSource struct {
	clause  string // up to where imports may follow: "package main"
	imports []string
	body    string // everything after the imports
	end     string // added after the body
}

// String returns the program.
func (g goSource) String() string {
	b := g.clause
	for _, spec := range g.imports {
		b += "; import " + spec
	}
	return b + g.body + g.end
}

// wrapGo makes a program of code. Code with a package clause is left as it is. Other code either declares main or is the body
// of main, optionally preceded by imports; package main is added, and an import of fmt if it is used.
func wrapGo(code string) goSource {
	if f, fset := parseGo(code, parser.PackageClauseOnly); f != nil {
		at := fset.Position(f.Name.End()).Offset
		return goSource{clause: code[:at], body: code[at:]}
	}
	const clause = "package main"
	g := goSource{clause: clause}
	if !importsFmt(code) && strings.Contains(code, "fmt.") {
		g.imports = append(g.imports, `"fmt"`)
	}
	if hasMain(code) {
		g.body = "; " + code
		return g
	}
	imports := code[:goImports(code)]
	g.body = "; " + imports
	if imports != "" && !strings.ContainsAny(imports[len(imports)-1:], "\n;") {
		g.body += ";"
	}
	g.body += "func main() { " + code[len(imports):]
	g.end = "\n}\n"
	return g
}

// importsFmt reports whether code without a package clause imports something under the name fmt.
func importsFmt(code string) bool {
	f, _ := parseGo("package main;"+code[:goImports(code)], parser.ImportsOnly)
	return f != nil && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return i.Name == nil && i.Path.Value == `"fmt"` || i.Name != nil && i.Name.Name == "fmt"
	})
}

// parseGo returns nil if code cannot be parsed.
func parseGo(code string, mode parser.Mode) (*ast.File, *token.FileSet) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", code, mode)
	if err != nil {
		return nil, nil
	}
	return f, fset
}

// hasMain reports whether code without a package clause declares main. It also finds main in code with syntax errors, which
// are left for the compiler to report.
func hasMain(code string) bool {
	f, _ := parseGo("package main;"+code, parser.SkipObjectResolution)
	if f == nil {
		return strings.Contains("\n"+code, "\nfunc main(")
	}
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == "main"
	})
}

// goImports returns the offset of the end of the import declarations at the beginning of code, 0 if there are none.
func goImports(code string) int {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(code))
	s.Init(file, []byte(code), nil, 0)
	end, inside, depth := 0, false, 0
	for {
		pos, tok, _ := s.Scan()
		switch {
		case tok == token.IMPORT && !inside:
			inside = true
		case !inside || tok == token.EOF:
			return end
		case tok == token.LPAREN:
			depth++
		case tok == token.RPAREN:
			depth--
		case tok == token.SEMICOLON && depth == 0:
			inside, end = false, min(file.Offset(pos)+1, len(code))
		}
	}
}
