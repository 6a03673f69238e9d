package mcp

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// A goSource is a program in Go, in parts. What is added stands on the lines that the code has, whose numbers stay.
type goSource struct {
	clause  string // up to where imports may follow: "package main"
	imports []string
	body    string // all that follows
	end     string // what is added after it
}

// String returns the program.
func (g goSource) String() string {
	b := g.clause
	for _, spec := range g.imports {
		b += "; import " + spec
	}
	return b + g.body + g.end
}

// wrapGo makes a program of code. Code with a package clause is left as it is. Other code has declarations, among them
// that of main, or it is what main has in it, after the imports that it may begin with; package main and, where it is used,
// fmt are added.
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

// importsFmt says whether code without a package clause has something of that name.
func importsFmt(code string) bool {
	f, _ := parseGo("package main;"+code[:goImports(code)], parser.ImportsOnly)
	return f != nil && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return i.Name == nil && i.Path.Value == `"fmt"` || i.Name != nil && i.Name.Name == "fmt"
	})
}

// parseGo returns nil for what is no file.
func parseGo(code string, mode parser.Mode) (*ast.File, *token.FileSet) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", code, mode)
	if err != nil {
		return nil, nil
	}
	return f, fset
}

// hasMain says whether code without a package clause declares main: also where something else in it is wrong, which the
// compiler is to say.
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

// goImports returns where the import declarations at the front of code end, 0 without any.
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
