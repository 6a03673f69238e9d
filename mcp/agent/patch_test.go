package agent

import (
	"strings"
	"testing"
)

// TestPatchText: binary files are named with their sizes, and texts are passed on as they are, however the patch is cut into writes.
func TestPatchText(t *testing.T) {
	text := "diff --git a/t b/t\n--- a/t\n+++ b/t\n@@ -1 +1,3 @@\n-GIT binary patch\n+literal 9\n GIT binary patch\n+" + strings.Repeat("long ", 100) + "\n"
	const binary = "diff --git a/b.pyc b/b.pyc\nindex 1..2\nGIT binary patch\nliteral 9\nzcmV;GIT\nliteral\n\n"
	const end = "diff --git a/e b/e\nold mode 100644\nnew mode 100755\n\\ No newline"
	const said = "diff --git a/b.pyc b/b.pyc\nindex 1..2\nbinary, 9 bytes, not shown\n"
	for name, c := range map[string]struct{ patch, want string }{
		"texts":         {text + end, text + end},
		"between texts": {text + binary + binary + text, text + said + said + text},
		"last":          {text + binary, text + said},
		"empty":         {"", ""},
		"cut off":       {"GIT binary", ""},
	} {
		for _, size := range []int{1, 7, 1000} {
			var got strings.Builder
			w := &patchText{w: &got}
			for rest := c.patch; rest != ""; {
				part := rest[:min(size, len(rest))]
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
				rest = rest[len(part):]
			}
			if got.String() != c.want {
				t.Errorf("%s, written by %d bytes: %q, want %q", name, size, got.String(), c.want)
			}
		}
	}
}
