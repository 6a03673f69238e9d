package isolate

import (
	"bytes"
	"cmp"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// manyFiles fills a repository with 50,000 files of 1 KB in 500 directories, and commits them.
const manyFiles = `set -e
perl -e 'for my $d (1..500) { mkdir "d" . $d % 20; my $dir = "d" . $d % 20 . "/e$d"; mkdir $dir;
	for (1..100) { open my $f, ">", "$dir/f$_.txt" or die; print $f "$d $_ " x 128 } }'
git init -q . && git config gc.auto 0 && git add -A && git -c user.name=a -c user.email=a@example.org commit -qm all
git ls-files >.git/list`

const openEach = `perl -ne 'chomp; open my $f, "<", $_ or die "$_: $!"' .git/list`

// afterStart are programs that use many files, each a script for bash.
var afterStart = []struct{ name, script string }{
	{"git status", "git status --porcelain"},
	{"git status again", "git status --porcelain\nagain\ngit status --porcelain"},
	{"open", openEach},
	{"open again", openEach + "\nagain\n" + openEach},
	{"tar", "tar c --exclude=.git . | wc -c"},
	{"grep", "grep -r --exclude-dir=.git needle . || test $? = 1"},
}

// BenchmarkAfterStart compares what programs cost that use many files after their start: in a job and outside, in turn, as the owner of
// the repository. "ms-outside" is the median of the processor times, "ratio" that of the pairs' ratios. Each round has a job of its own,
// in an overlay a new session. A row with a step's name leaves that step out.
func BenchmarkAfterStart(b *testing.B) {
	sandboxtest.Require(b, sandboxtest.Program("bash"), sandboxtest.Program("perl"), sandboxtest.Program("git"))
	for _, steps := range []string{"", "landlock"} {
		f := newFront(b, skip(b, strings.Fields(steps)))
		f.Repo = filepath.Join(sandboxtest.OpenDir(b), "repo") // the owner starts in it
		mkdir(b, f.Repo, owner)
		f.outside(b, manyFiles)
		for name, w := range map[string]job.Workspace{"direct": job.Direct, "overlay": job.Overlay} {
			for _, tt := range afterStart {
				b.Run(strings.ReplaceAll(strings.Join([]string{tt.name, name, cmp.Or(steps, "complete")}, "/"), " ", "-"), func(b *testing.B) {
					f.compare(b, w, tt.script)
				})
			}
		}
	}
}

// compare reports what a script costs inside and outside.
func (f *front) compare(b *testing.B, w job.Workspace, script string) {
	b.Helper()
	var times, ratios []float64
	for b.Loop() {
		outside := f.outside(b, script)
		times, ratios = append(times, outside), append(ratios, f.inside(b, w, script)/outside)
	}
	slices.Sort(times)
	slices.Sort(ratios)
	b.ReportMetric(1000*times[len(times)/2], "ms-outside")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

// timed returns a script for bash that writes the processor time that another one takes to its standard error, in seconds. Unlike
// elapsed time, it can be compared while others use the processors. What is before a line "again" is not measured.
func timed(script string) []string {
	before, measured, again := strings.Cut(script, "\nagain\n")
	if !again {
		before, measured = "true", script
	}
	return []string{"bash", "-c", "{ " + before + "\n} >/dev/null; TIMEFORMAT='%U %S'; time { " + measured + "\n} >/dev/null"}
}

// outside runs a script for bash as the owner of the repository and returns the processor time it took in seconds.
func (f *front) outside(b *testing.B, script string) float64 {
	b.Helper()
	args := timed(script)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = f.Repo, environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s: %v %s", script, err, out.String())
	}
	return seconds(b, out.String())
}

// inside is like outside, in a job.
func (f *front) inside(b *testing.B, w job.Workspace, script string) float64 {
	b.Helper()
	spec := f.Spec(timed(script)...)
	spec.Workspace = w
	if w == job.Overlay {
		ss := f.Session(job.SessionSpec{Workspace: w})
		spec.Session = ss.ID
		defer f.CloseSession(ss, false)
	}
	d := f.Run(spec)
	if d.ExitCode != 0 {
		b.Fatalf("%s: %+v %s", script, d.Result, d.Err)
	}
	return seconds(b, d.Err)
}

func seconds(b *testing.B, text string) float64 {
	b.Helper()
	sum := 0.0
	for _, word := range strings.Fields(text) {
		s, err := strconv.ParseFloat(word, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += s
	}
	return sum
}
