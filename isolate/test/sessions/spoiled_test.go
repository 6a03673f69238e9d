package sessions

import (
	"testing"

	"corral/job"
)

// TestSpoiledDirectories: whatever a job does to the directories of its session's root, the next job starts and can
// write to the same places as before and nowhere else.
func TestSpoiledDirectories(t *testing.T) {
	f := shared(t)
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
			f := f.with(t, f.C, f.Repo)
			ss := f.Session(job.SessionSpec{Root: true})
			defer f.CloseSession(ss, false)
			f.Must(ss, "("+script+") 2>&1; true")
			if d := f.In(ss, "echo a >/made && echo b >here && cat /made here"); d.Out != "a\nb\n" {
				t.Errorf("%+v: %q, %q", d.Result, d.Out, d.Err)
			}
			if d := f.In(ss, "cd / && for i in /proc/sys/kernel/hostname /dev/x; do echo x >$i && echo $i; done; true"); d.Out != "" {
				t.Errorf("written: %q, %q", d.Out, d.Err)
			}
		})
	}
}
