package layers

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"strings"
)

// lazy is the package that compiles regular expressions when they are first used.
const lazy = "internal/lazyregexp"

// checkRegexps returns the regular expressions that a program compiles whenever it starts, and those of package lazy that
// are malformed: nothing else finds such an expression before it is used.
func (g *graph) checkRegexps() []string {
	var broken []string
	for _, name := range sorted(g.pkgs) {
		if matches(name, "scripts/...") || matches(name, "internal/test/...") {
			continue
		}
		for _, file := range g.pkgs[name].files {
			for _, at := range compiledAtStart(file) {
				broken = append(broken, fmt.Sprintf("%s: the expression is compiled whenever a program starts: use %s.New",
					g.fset.Position(at), lazy))
			}
		}
		if g.pkgs[name].imports[module+"/"+lazy] != "" {
			broken = append(broken, g.malformed(g.pkgs[name].files)...)
		}
	}
	return broken
}

// compiledAtStart returns where the package-level variables of a file compile regular expressions.
func compiledAtStart(file *ast.File) (found []token.Pos) {
	for _, d := range file.Decls {
		variables, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		ast.Inspect(variables, func(n ast.Node) bool {
			if called(n, "regexp", "MustCompile") {
				found = append(found, n.Pos())
			}
			_, later := n.(*ast.FuncLit)
			return !later
		})
	}
	return found
}

// malformed returns the expressions passed to package lazy by the files of a package that regexp does not compile.
func (g *graph) malformed(files []*ast.File) (broken []string) {
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: emptyImporter{}, FakeImportC: true, Error: func(error) {}}
	_, _ = conf.Check("p", g.fset, files, &info) // each name of an empty import is an error
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if !called(n, "lazyregexp", "New") && !called(n, "lazyregexp", "List") {
				return true
			}
			for _, arg := range n.(*ast.CallExpr).Args {
				if err := compiles(info.Types[arg].Value); err != nil {
					broken = append(broken, fmt.Sprintf("%s: %v", g.fset.Position(arg.Pos()), err))
				}
			}
			return true
		})
	}
	return broken
}

// called reports whether n calls the function of a package.
func called(n ast.Node, pkg, function string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == pkg && f.Sel.Name == function
}

func compiles(expression constant.Value) error {
	if expression == nil || expression.Kind() != constant.String {
		return fmt.Errorf("the expression of %s must be a constant", lazy)
	}
	_, err := regexp.Compile(constant.StringVal(expression))
	return err
}

// emptyImporter imports each package as one without names.
type emptyImporter struct{}

// Import implements types.Importer.
func (emptyImporter) Import(importPath string) (*types.Package, error) {
	name := path.Base(importPath)
	if isMajorVersion(name) {
		name = path.Base(path.Dir(importPath))
	}
	p := types.NewPackage(importPath, name)
	p.MarkComplete()
	return p, nil
}

// isMajorVersion reports whether the last element of an import path is a major version, such as v3.
func isMajorVersion(element string) bool {
	digits, ok := strings.CutPrefix(element, "v")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}
