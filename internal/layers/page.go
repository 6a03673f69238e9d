package layers

import (
	"fmt"
	"go/doc"
	"path"
	"slices"
	"strings"
)

// outsideGo describes the directories that are not a package of this module, or hold only tests.
var outsideGo = map[string]string{
	"bench":                "compares corral with a bare spawn and with other sandboxes; a module of its own",
	"bench/peers":          "pins the programs that the benchmark compares corral with; a module of its own",
	"cmd/corral-init/stub": "is corral-stub, in C: process 1 of a job, and the process that becomes the job",
	"docs":                 "is the documentation; its tests compare the pages with each other and with the code",
	"scripts":              "has the programs of development: set-up, demo, lint, fuzzing, virtual machine; and the service unit",
	"scripts/clients":      "tests the servers with the official clients of their protocols",
	"scripts/first":        "tests the commands that a new user runs first, on machines with new accounts",
	"scripts/suites":       "runs test suites of other projects outside and in jails, and compares them",
}

// A section is a part of ARCHITECTURE.md that is generated from the source, between two markers.
type section struct {
	name   string
	render func(*graph) (string, error)
}

var sections = []section{
	{"tree", (*graph).tree},
	{"imports", (*graph).importTable},
	{"rules", (*graph).ruleTable},
}

// update returns the page with each section rendered from g. A page that lacks a section's markers is an error.
func (g *graph) update(page string) (string, error) {
	for _, s := range sections {
		begin, end := "<!-- generated: "+s.name+" -->\n", "\n<!-- /generated: "+s.name+" -->"
		before, rest, ok := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return "", fmt.Errorf("the page has no %q followed by %q", begin, end)
		}
		text, err := s.render(g)
		if err != nil {
			return "", err
		}
		page = before + begin + "\n" + text + end + after
	}
	return page, nil
}

// tree renders one row per directory: its path, and what it is for.
func (g *graph) tree() (string, error) {
	rows := map[string]string{}
	for name, purpose := range outsideGo {
		rows[name] = purpose
	}
	for _, name := range sorted(g.pkgs) {
		purpose := purposeOf(g.pkgs[name].doc)
		if purpose == "" {
			return "", fmt.Errorf("%s: the package comment must begin with its name and say what the package is for, got %q", name, g.pkgs[name].doc)
		}
		if rows[name] != "" {
			return "", fmt.Errorf("%s: described by its package comment and in outsideGo: delete the row of outsideGo", name)
		}
		rows[name] = purpose
	}
	var b strings.Builder
	b.WriteString("| directory | what it is for |\n|---|---|\n")
	for _, name := range sorted(rows) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, cell(rows[name]))
	}
	return b.String(), nil
}

// purposeOf returns the first sentence of a package comment without its subject and its full stop: of "Package rootfs
// describes a root." and of "Rootfs describes a root." it is "describes a root".
func purposeOf(comment string) string {
	sentence := strings.TrimSuffix(new(doc.Package).Synopsis(comment), ".")
	for _, kind := range []string{"Package ", "Command "} {
		sentence = strings.TrimPrefix(sentence, kind)
	}
	_, purpose, _ := strings.Cut(sentence, " ")
	return purpose
}

// importTable renders one row per package that a program is linked with: the packages and the libraries that it imports.
func (g *graph) importTable() (string, error) {
	var b strings.Builder
	b.WriteString("| package | imports | libraries |\n|---|---|---|\n")
	for _, name := range g.linked() {
		var packages, libraries []string
		for _, i := range sorted(g.pkgs[name].imports) {
			if target, isLocal := local(i); isLocal {
				packages = append(packages, target)
			} else if l := g.library(i); !std(i) && i != "C" && shared[l] == "" && !slices.Contains(libraries, l) {
				libraries = append(libraries, l)
			}
		}
		if len(packages)+len(libraries) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, strings.Join(packages, ", "), strings.Join(libraries, ", "))
		}
	}
	return b.String(), nil
}

// linked returns the programs and the packages that they reach, in order.
func (g *graph) linked() []string {
	found := map[string]bool{}
	for name := range g.pkgs {
		if path.Dir(name) != "cmd" {
			continue
		}
		found[name] = true
		for _, s := range g.reach(name) {
			if g.pkgs[s.target] != nil {
				found[s.target] = true
			}
		}
	}
	return sorted(found)
}

// ruleTable renders the rules that a reader should know first: those of all packages, and the bounds marked as such.
func (g *graph) ruleTable() (string, error) {
	var b strings.Builder
	b.WriteString("| rule | reason |\n|---|---|\n")
	fmt.Fprintf(&b, "| each library has one importing package | it can be replaced, and its types do not spread |\n")
	fmt.Fprintf(&b, "| no package has an `init` function | it would run in every child that is forked |\n")
	for _, r := range bounds {
		if r.shown {
			fmt.Fprintf(&b, "| %s | %s |\n", r.sentence(), cell(r.reason))
		}
	}
	return b.String(), nil
}

// sentence returns the bound as a sentence.
func (b bound) sentence() string {
	if b.only != nil {
		return fmt.Sprintf("`%s` reaches only %s", b.from, names(b.only))
	}
	return fmt.Sprintf("`%s` never reaches %s", b.from, names(b.never))
}

// names returns the patterns of a bound as a list in words.
func names(patterns []string) string {
	var list []string
	for _, p := range patterns {
		if p == "std" {
			list = append(list, "the standard library")
		} else {
			list = append(list, "`"+p+"`")
		}
	}
	return strings.Join(list, ", ")
}

// cell returns text for a cell of a Markdown table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}
