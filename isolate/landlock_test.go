package isolate

import (
	"testing"

	"corral/job"
)

// TestSpoiledDirectories: whatever a job does to the directories of its session's root, the next job starts and can
// write to the same places as before and nowhere else.
func TestSpoiledDirectories(t *testing.T) {
	f := newFront(t)
	for name, script := range map[string]string{
		"file":            "rm -rf /var; echo >/var",
		"pipe":            "rm -rf /home; mkfifo /home",
		"link":            "rm -rf /var/tmp; ln -s /proc /var/tmp",
		"link above":      "rm -rf /var; ln -s /dev /var",
		"link to itself":  "rm -rf /home; ln -s /home /home",
		"nobody's":        "chmod 0 /var",
		"nothing":         "rm -rf /var /home",
		"a temporary one": "rm -rf /tmp; ln -s /proc /tmp",
	} {
		t.Run(name, func(t *testing.T) {
			f := &front{t, f.s, f.c, f.repo}
			ss := f.session(job.SessionSpec{Root: true})
			defer f.close(ss, false)
			f.must(ss, "("+script+") 2>&1; true")
			if d := f.in(ss, "echo a >/made && echo b >here && cat /made here"); d.out != "a\nb\n" {
				t.Errorf("%+v: %q, %q", d.Result, d.out, d.err)
			}
			if d := f.in(ss, "cd / && for i in /proc/sys/kernel/hostname /dev/x; do echo x >$i && echo $i; done; true"); d.out != "" {
				t.Errorf("written: %q, %q", d.out, d.err)
			}
		})
	}
}
