package fault

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms are the directories whose code runs in the supervisor, and apart what is below them and does not.
var (
	rooms = []string{"isolate", "cgroup", "rootfs", "store/audit", "store/authority", "store/volume"}
	apart = []string{"isolate/client", "isolate/scan", "isolate/test"}
)

// own are the locks of one job, connection, session or jail, which ends with what a panic left half done. All others are a Mutex.
var own = map[string]string{
	"isolate/run.mu":                   "of a job",
	"isolate/connection.mu":            "of a connection",
	"isolate/wire/Conn.mu":             "of a connection: sends one message at a time",
	"isolate/meter/lockHolder.mu":      "of a job",
	"isolate/cell/Jail.scannerMu":      "of a jail",
	"isolate/cell/scanner.mu":          "of a jail: one request at a time, and none after a panic",
	"isolate/cell/scanState.mu":        "of a jail's scanner",
	"isolate/cell/initProcess.mu":      "of a jail: one request at a time, whose number the answer has",
	"isolate/cell/sharedDoor.mu":       "of a session",
	"isolate/cell/WatchLayer.mu":       "of a job",
	"isolate/sessions/Session.endMu":   "of a session",
	"isolate/sessions/Session.layerMu": "of a session",
}

// TestLocks: each lock in the supervisor is released by the next statement, deferred, so that a panic leaves none held, and is a Mutex
// unless it is one's own.
func TestLocks(t *testing.T) {
	found := map[string]bool{}
	locks := 0
	for _, room := range rooms {
		err := filepath.WalkDir(filepath.Join("../..", room), func(path string, d fs.DirEntry, err error) error {
			dir, _ := filepath.Rel("../..", path)
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(apart, dir):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			c := checker{t: t, files: files, dir: filepath.Dir(dir), found: found}
			ast.Walk(&c, file)
			locks += c.locks
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range own {
		if !found[name] {
			t.Errorf("there is no lock %s any more", name)
		}
	}
	if locks < 100 {
		t.Errorf("%d locks were found, which cannot be all", locks)
	}
}

// A checker walks one file.
type checker struct {
	t     *testing.T
	files *token.FileSet
	dir   string
	in    string // the type or function around
	found map[string]bool
	locks int
}

func (c *checker) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.TypeSpec:
		c.in = n.Name.Name
	case *ast.FuncDecl:
		c.in = n.Name.Name
	case *ast.Field:
		c.declares(n.Names, n.Type)
	case *ast.ValueSpec:
		c.declares(n.Names, n.Type)
	case *ast.BlockStmt:
		c.statements(n.List)
	case *ast.CaseClause:
		c.statements(n.Body)
	case *ast.CommClause:
		c.statements(n.Body)
	}
	return c
}

// declares checks the type of a lock.
func (c *checker) declares(names []*ast.Ident, of ast.Expr) {
	if of == nil {
		return
	}
	switch c.text(of) {
	case "sync.Mutex":
		for _, name := range names {
			lock := c.dir + "/" + c.in + "." + name.Name
			if c.found[lock] = true; own[lock] == "" {
				c.t.Errorf("%v: %s guards what others use, too: it must be a fault.Mutex", c.files.Position(of.Pos()), lock)
			}
		}
	case "sync.RWMutex":
		c.t.Errorf("%v: a sync.RWMutex does not end the process after a panic", c.files.Position(of.Pos()))
	}
}

// statements checks that each lock is followed by its release.
func (c *checker) statements(list []ast.Stmt) {
	for n, s := range list {
		call, ok := s.(*ast.ExprStmt)
		if !ok || !strings.HasSuffix(c.text(call), ".Lock()") {
			continue
		}
		c.locks++
		want := "defer " + strings.TrimSuffix(c.text(call), "Lock()") + "Unlock()"
		if n+1 == len(list) || c.text(list[n+1]) != want {
			c.t.Errorf("%v: the next statement must be: %s", c.files.Position(s.Pos()), want)
		}
	}
}

func (c *checker) text(n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, c.files, n); err != nil {
		c.t.Fatal(err)
	}
	return b.String()
}
