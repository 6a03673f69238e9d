package config

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/config/strict"
	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/policy/network"
)

var update = flag.Bool("update", false, "write the files that are generated from the tables of keys")

// TestGenerated: schema.json, example.yaml and the tables of the reference are what the tables of keys say.
func TestGenerated(t *testing.T) {
	g := newGenerator(t)
	reference := filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/configuration.md")
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		"schema.json": g.jsonSchema(), "example.yaml": g.example(), reference: g.reference(string(page)),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := contentOf(t, file); got != content {
			t.Errorf("%s is not up to date: go test ./internal/config -run TestGenerated -update", file)
		}
	}
}

// A generator writes what is made from the tables of keys.
type generator struct {
	language strict.Language
	docs     map[string]doc // comments of fields, by TYPE.FIELD
}

// A doc is the comment of a field: its first paragraph, and all of it.
type doc struct{ brief, full string }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// newGenerator parses the comments of the fields in this package.
func newGenerator(t *testing.T) *generator {
	g := &generator{language(lookup), map[string]doc{}}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, filepath.Join(sandboxtest.ModuleRoot(t), "policy/network/network.go"))
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				g.readType(spec)
			}
			return true
		})
	}
	return g
}

func (g *generator) readType(spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			brief, rest, _ := strings.Cut(field.Doc.Text(), "\n\n")
			g.docs[spec.Name.Name+"."+name.Name] = doc{oneLine(brief), oneLine(brief + " " + rest)}
		}
	}
}

// A key is a row with what is said about it.
type key struct {
	strict.Row
	doc
	without string
}

// keys returns the keys of the mapping that into points to.
func (g *generator) keys(into any) []key {
	v := reflect.ValueOf(into).Elem()
	var all []key
	rows, _ := g.language.Rows(v)
	for _, row := range rows {
		k := key{Row: row, without: row.Tag.Get("without")}
		for t := v.Type(); t.Kind() == reflect.Struct; t = reflect.TypeFor[Config]() {
			field := fieldOf(t, row.Name)
			if k.doc = g.docs[t.Name()+"."+field]; k.full != "" || t == reflect.TypeFor[Config]() {
				break
			}
		}
		if k.without == "" {
			k.without = row.Tag.Get("default") + row.Tag.Get("implied")
		}
		all = append(all, k)
	}
	if limits, ok := into.(*job.Limits); ok {
		for i, f := range limits.Fields() {
			all[i].doc = doc{f.Doc, f.Doc}
		}
	}
	return all
}

// fieldOf returns the name of the field with a key.
func fieldOf(t reflect.Type, name string) string {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return t.Field(i).Name
		}
	}
	return ""
}

// element returns a pointer to a new element of a list or map of mappings, or a pointer to a mapping; nil for other values.
func (k key) element() any {
	t := k.Value.Type()
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || k.Form.Parse != nil {
		return nil
	}
	return reflect.New(t).Interface()
}

// TestDocumented: every key has a comment and a default, or says what holds without it.
func TestDocumented(t *testing.T) {
	g := newGenerator(t)
	var check func(name string, into any)
	check = func(name string, into any) {
		for _, k := range g.keys(into) {
			element := k.element()
			if k.full == "" {
				t.Errorf("%s.%s has no comment", name, k.Name)
			}
			if _, limit := into.(*job.Limits); !limit && k.without == "" && element == nil {
				t.Errorf("%s.%s does not say what holds without it", name, k.Name)
			}
			if element != nil {
				check(name+"."+k.Name, element)
			}
		}
	}
	check("", &document{Config: Default()})
}

// plain returns a comment without the marks of Markdown.
func plain(doc string) string {
	return regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(doc, "$1")
}

const exampleHead = `# Configuration of corral: /etc/corral/config.yaml, which belongs to root and only root may write.
#
# Every key is commented out and has the value that applies without it, or an example where there is none. Check with
# ` + "`corral config check`, see the result with `corral config show`" + `. The supervisor reads the file when it starts.
#
# Front-ends (corral mcp, corral serve, corral exec-server) read it too, then $XDG_CONFIG_HOME/corral/config.yaml (~/.config
# by default), then the file that --config names. The last file takes precedence: key by key in mappings; a list replaces the
# earlier list. The supervisor reads this file alone, so a user's cannot widen what it allows.
#
# Beside each of these files, repos.d/NAME.yaml and principals.d/NAME.yaml can have further entries of repos and principals.
#
# Sizes are in bytes or have a unit (KiB, MiB, GiB; 1.5g), times are written as 90s, 5m, 1h30m. "unlimited" lifts the limits
# cpus, timeout, disk, inodes and file_size.

version: 1
`

// example returns example.yaml.
func (g *generator) example() string {
	b := &strings.Builder{}
	b.WriteString(exampleHead)
	for _, k := range g.keys(&document{Config: Default()})[1:] {
		if k.Name == "uids" {
			b.WriteString("\n# ---- For the supervisor " + strings.Repeat("-", 90) + "\n")
		}
		if k.Name == "runtime" {
			b.WriteString("\n# ---- For front-ends " + strings.Repeat("-", 94) + "\n")
		}
		b.WriteString("\n")
		wrap(b, "# ", k.sentence())
		element := k.element()
		if value := k.Tag.Get("example") + k.Tag.Get("default"); element == nil || value != "" {
			b.WriteString("#" + k.Name + ": " + value + "\n")
			continue
		}
		b.WriteString("#" + k.Name + ":\n")
		indent, first := "#  ", "#  "
		switch k.Value.Kind() {
		case reflect.Slice:
			indent, first = "#    ", "#  - "
		case reflect.Map:
			b.WriteString("#  untrusted:\n")
			indent, first = "#    ", "#    "
		}
		if _, limits := element.(*job.Limits); limits {
			element = new(job.Defaults())
		}
		for _, k := range g.keys(element) {
			g.line(b, first, indent, k)
			first = indent
		}
	}
	return b.String()
}

// line writes a key within a section: with its comment behind it, or above it if that is too long.
func (g *generator) line(b *strings.Builder, first, indent string, k key) {
	name, rest, nested := strings.Cut(k.Name, ".")
	line := first + name + ": " + g.value(k)
	if nested {
		line = first + name + ": {" + rest + ": " + g.value(k) + "}"
	}
	if full := line + "  # " + k.sentence(); len(full) <= 126 {
		b.WriteString(full + "\n")
		return
	}
	if first == indent {
		wrap(b, indent+"# ", k.sentence())
		b.WriteString(line + "\n")
		return
	}
	b.WriteString(line + "\n")
}

// value returns an example of a value, or the default.
func (g *generator) value(k key) string {
	if v := cmp.Or(k.Tag.Get("example"), k.Tag.Get("default"), k.Tag.Get("implied")); v != "" {
		if k.Value.Kind() == reflect.Slice && !strings.HasPrefix(v, "[") {
			return "[" + v + "]"
		}
		return v
	}
	switch {
	case k.Tag == "": // a limit
		if k.Unlimited && k.Value.Int() == k.UnlimitedValue {
			return "unlimited"
		}
		return k.Form.Write(k.Value.Convert(reflect.TypeFor[int64]()).Interface())
	case k.Name == "runtimes":
		return "[" + strings.Join(job.AllRuntimes(), ", ") + "]"
	case k.Value.Kind() == reflect.Slice:
		return "[]"
	}
	return "{}"
}

// sentence returns the comment of a key with its range, for people.
func (k key) sentence() string {
	s := strings.TrimSuffix(plain(k.full), ".")
	if low, high := k.Tag.Get("min"), k.Tag.Get("max"); low != "" {
		s += "; " + low + " to " + high
	}
	switch without := plain(k.Tag.Get("without")); {
	case without == "required":
		s += ". Required"
	case without != "" && !strings.HasPrefix(without, "see "):
		s += ". Without it: " + without
	}
	return s
}

// wrap writes text in lines of at most 120 characters.
func wrap(b *strings.Builder, prefix, text string) {
	line := strings.TrimSuffix(prefix, " ")
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 120 {
			b.WriteString(line + "\n")
			line = strings.TrimSuffix(prefix, " ")
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// reference returns the page with its tables, each between <!-- keys: NAME --> and <!-- /keys -->.
func (g *generator) reference(page string) string {
	all := g.keys(&document{Config: Default()})
	front := 0
	for all[front].Name != "runtime" {
		front++
	}
	for name, keys := range map[string][]key{
		"supervisor": all[:front], "repos": g.keys(new(Repo)), "profiles": g.keys(new(Profile)),
		"front-ends": all[front:], "principals": g.keys(new(Principal)),
		"rules": g.keys(new(network.Rule)), "secrets": g.keys(new(Secret)),
	} {
		between := regexp.MustCompile(`(?s)(<!-- keys: ` + name + ` -->\n).*?(<!-- /keys -->)`)
		page = between.ReplaceAllStringFunc(page, func(old string) string {
			begin, _, _ := strings.Cut(old, "\n")
			return begin + "\n\n" + g.table(keys) + "\n<!-- /keys -->"
		})
	}
	between := regexp.MustCompile(`(?s)(<!-- presets -->\n).*?(<!-- /presets -->)`)
	return between.ReplaceAllString(page, "${1}\n"+presetTable()+"\n${2}")
}

// presetTable returns the presets of network rules with their hosts.
func presetTable() string {
	b := &strings.Builder{}
	b.WriteString("| preset | for | hosts |\n|---|---|---|\n")
	for _, p := range network.Presets() {
		var hosts []string
		for _, r := range p.Rules {
			host := "`" + r.Host + "`"
			if r.Protocol != "" {
				host += " (" + r.Protocol + ")"
			}
			hosts = append(hosts, host)
		}
		hosts = slices.Compact(hosts) // several rules of a host
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Name, p.About, strings.Join(hosts, ", "))
	}
	return b.String()
}

func (g *generator) table(keys []key) string {
	b := &strings.Builder{}
	b.WriteString("| key | value | without it |\n|---|---|---|\n")
	for _, k := range keys {
		g.tableRow(b, "", k)
	}
	return b.String()
}

func (g *generator) tableRow(b *strings.Builder, prefix string, k key) {
	name, inner, nested := strings.Cut(k.Name, ".")
	element := k.element()
	_, limits := element.(*job.Limits)
	if element != nil && k.Value.Kind() == reflect.Struct && !limits {
		for _, one := range g.keys(element) {
			one.Tag += " " + k.Tag
			g.tableRow(b, prefix+name+".", one)
		}
		return
	}
	doc := strings.TrimSuffix(k.brief, ".")
	if nested {
		doc = "`{" + inner + ": [NAME]}`: " + strings.ToLower(doc[:1]) + doc[1:]
	}
	mark, without := "", k.without
	if k.Tag.Get("scope") == "supervisor" {
		mark = " ¹"
	}
	switch {
	case k.Tag == "":
		without = "`" + g.value(k) + "`"
	case k.Value.Kind() == reflect.Slice && k.Tag.Get("default") != "":
		without = "`[" + without + "]`"
	case k.Tag.Get("default")+k.Tag.Get("implied") != "":
		without = "`" + without + "`"
	}
	fmt.Fprintf(b, "| `%s%s`%s | %s | %s |\n", prefix, name, mark, doc, without)
}
