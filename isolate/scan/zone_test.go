package scan

import (
	"bytes"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// sensitive reports whether the rules make a path sensitive: ordinary directories and a last component that is not a
// directory.
func sensitive(p string) bool {
	z := compile(Table)
	dir, name := path.Split(p)
	for d := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if d == "" {
			continue
		}
		k := z.lookup([]byte(d))
		if k.bareOnly {
			k = z.other([]byte(d))
		}
		if z = k.dir; z == nil {
			return false
		}
	}
	k := z.lookup([]byte(name))
	return k.track && !k.bareOnly
}

// TestTable: rows are unique and in the form that compile expects, and their paths are sensitive.
func TestTable(t *testing.T) {
	seen := map[Rule]bool{}
	for i, r := range Table {
		if r.Why == "" || r.Path == "" || r.Path != strings.ToLower(r.Path) || strings.HasPrefix(r.Path, "/") {
			t.Errorf("row %d: %+v", i, r)
		}
		if key := (Rule{In: r.In, Path: strings.TrimSuffix(r.Path, "/")}); seen[key] {
			t.Errorf("row %d: duplicate path %s", i, r.Path)
		} else {
			seen[key] = true
		}
		if last := path.Base(r.Path); len(last) >= maxFolded {
			t.Errorf("row %d: %s is longer than maxFolded", i, r.Path)
		}
		p := r.Path
		switch r.In {
		case GitDir:
			p = ".git/" + p
		case Bare:
			continue
		}
		if strings.HasSuffix(p, "/") {
			p += "x/y"
		}
		for _, prefix := range []string{"", "a/b/", ".github/", ".claude/", ".claude/worktrees/w/", ".cargo/"} {
			if r.Path == ".claude/" && prefix == ".claude/" {
				continue
			}
			if !sensitive(prefix + p) {
				t.Errorf("%s is not sensitive", prefix+p)
			}
			if up := strings.ToUpper(prefix + p); !sensitive(up) {
				t.Errorf("%s is not sensitive", up)
			}
		}
	}
}

// TestAlternatives: a word with braces stands for each alternative, in all of its braces.
func TestAlternatives(t *testing.T) {
	for word, want := range map[string]string{
		"a": "a", "a{,.b}": "a a.b", "{x,y}/{1,2}z": "x/1z y/1z x/2z y/2z",
	} {
		if got := strings.Join(alternatives(word), " "); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}

// TestOrdinary: paths of ordinary work are not sensitive.
func TestOrdinary(t *testing.T) {
	for _, p := range []string{
		"HEAD", "config", "hooks/x", "main.go", ".gitignore", ".git/HEAD", ".git/refs/heads/config",
		".git/logs/hooks/x", ".git/objects/aa/config", ".git/hooks/x.sample", ".git/COMMIT_EDITMSG",
		".github/FUNDING.yml", ".cargo/registry/x", "claude", "agents.mdx", "git/config", ".gitx/config", "..git", "ägents.md",
		".claude/worktrees/w/main.go", ".git/modules/a/refs/heads/config", ".git/worktrees/w/HEAD",
	} {
		if sensitive(p) {
			t.Errorf("%s is sensitive", p)
		}
	}
	for _, p := range []string{".code-workspace.d/x", "code-workspace", "x.code-workspace.bak", "tools/x", "gradle/x", ".config/x", ".helix/x"} {
		if sensitive(p) {
			t.Errorf("%s is sensitive", p)
		}
	}
}

// TestFold: names are folded as HFS+, NTFS and case-insensitive file systems do.
func TestFold(t *testing.T) {
	for in, want := range map[string]string{
		".git": ".git", ".GiT": ".git", ".git. .": ".git", ".g\u200cit": ".git", "\ufeff.git": ".git", ".v\u017fcode": ".vscode",
		"\u212a": "k", ".": "", "...": "", "x .y": "x .y",
	} {
		if got, ok := fold(nil, []byte(in)); !ok || string(got) != want {
			t.Errorf("fold(%q) = %q, %v", in, got, ok)
		}
	}
	for _, in := range []string{strings.Repeat("x", maxFolded), "é", "\xff", ".git\xe2\x80"} {
		if got, ok := fold(nil, []byte(in)); ok {
			t.Errorf("fold(%q) = %q", in, got)
		}
	}
}

// TestLookalike: only the combinations of entries that git takes for a repository are look-alikes.
func TestLookalike(t *testing.T) {
	for marks, want := range map[uint8]bool{
		hasHead | hasObjects | hasRefs: true, hasHead | hasCommon: true, hasObjects | hasRefs | hasCommon: false,
		hasHead | hasObjects: false, hasHead | hasRefs: false, 0: false,
	} {
		if lookalike(marks) != want {
			t.Errorf("lookalike(%b) = %v", marks, !want)
		}
	}
}

// TestExactOn: times are exact only on the file systems and kernel versions of the table.
func TestExactOn(t *testing.T) {
	const ext4, overlay = 0xef53, 0x794c7630
	for _, tc := range []struct {
		magic   int64
		release string
		want    bool
	}{
		{ext4, "6.13.0", true},
		{ext4, "6.18.2-cloud", true},
		{ext4, "7.0", true},
		{ext4, "6.12.99", false},
		{ext4, "5.15.0-91-generic", false},
		{ext4, "strange", false},
		{overlay, "6.18.0", false},
	} {
		if got := exactOn(tc.magic, tc.release); got != tc.want {
			t.Errorf("exactOn(%#x, %q) = %v", tc.magic, tc.release, got)
		}
	}
}

// FuzzLookup: any name in any zone has a result, the same for all spellings of it, and folding is idempotent.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{".git", ".GIT ", "HEAD", "hooks", "x.sample", ".g\u200cit", "git~1", "\xff\xfe", "", strings.Repeat("\u200c", 99) + ".git"} {
		f.Add([]byte(s))
	}
	tree := compile(Table)
	zones := []*zone{tree}
	for seen := map[*zone]bool{tree: true}; ; {
		n := len(zones)
		for _, z := range zones {
			for _, k := range z.kids {
				if k.dir != nil && !seen[k.dir] {
					seen[k.dir] = true
					zones = append(zones, k.dir)
				}
			}
		}
		if n == len(zones) {
			break
		}
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		folded, ok := fold(nil, name)
		if len(folded) > maxFolded {
			t.Fatalf("fold(%q) is %d bytes", name, len(folded))
		}
		if ok {
			if again, ok := fold(nil, folded); !ok || !bytes.Equal(again, folded) {
				t.Fatalf("fold(%q) = %q, and of that %q", name, folded, again)
			}
			if !utf8.Valid(folded) {
				t.Fatalf("fold(%q) = %q", name, folded)
			}
		}
		for _, z := range zones {
			k := z.lookup(name)
			if (k.track || k.trackDir) && (k.row < 0 || int(k.row) >= len(Table)) {
				t.Fatalf("lookup(%q): %+v has no row", name, k)
			}
			if ok && !z.samples && z.lookup(folded) != k {
				t.Fatalf("lookup(%q) differs from that of %q", name, folded)
			}
		}
	})
}
