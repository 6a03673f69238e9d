package commands

import (
	"strings"
	"testing"
)

// TestLineCounter: lines of a patch are counted by the numbers of its hunks, however it is written, and nothing is taken for one that is not.
func TestLineCounter(t *testing.T) {
	long := strings.Repeat("x", 3*maxHunk)
	patch := strings.Join([]string{
		"diff --git a/f b/f", "--- a/f", "+++ b/f", "@@ -1,3 +1,4 @@ func", " one", "--- two", "+++ three", "+" + long, " four",
		"diff --git a/g b/g", "--- /dev/null", "+++ b/g", "@@ -0,0 +1 @@", "+@@ -1,9 +1,9 @@", "\\ No newline at end of file",
		"diff --git a/h b/h", "+++ b/h", "-no hunk", "@@ -1 +0,0 @@", "-last", "",
	}, "\n")
	for _, size := range []int{1, 7, len(patch)} {
		var c lineCounter
		for rest := patch; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := c.Write([]byte(rest[:n])); err != nil || wrote != n {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if c.added != 3 || c.removed != 2 || cap(c.begin) > 4*maxHunk {
			t.Errorf("%d bytes at a time: %d added, %d removed, %d bytes are kept", size, c.added, c.removed, cap(c.begin))
		}
	}
}
