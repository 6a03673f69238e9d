package index

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// TestMain plays another process that has the index open.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("INDEX_TEST_MEMORY") != "":
		os.Exit(hungry())
	case os.Getenv("INDEX_TEST_DIR") != "":
		os.Exit(adder())
	}
	os.Exit(m.Run())
}

// sourceText is the text of the nth source of an adder: each line has a word that tells whose it is.
func sourceText(who string, n int) string {
	return numbered(fmt.Sprintf("%sx%dx", who, n), []int{5, 400, 8000 / RaceScale}[n%3])
}

// adder adds one source after the other, and tells the name of each, until it is killed or its standard input ends.
func adder() int {
	dir, err := os.Open(os.Getenv("INDEX_TEST_DIR"))
	if err != nil {
		return report(err)
	}
	x, err := Open(dir, Options{})
	dir.Close()
	if err != nil {
		return report(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	who := os.Getenv("INDEX_TEST_WHO")
	for n := 0; ; n++ {
		a, err := x.Add(context.Background(), testBase, Source{Label: who}, strings.NewReader(sourceText(who, n)))
		if err != nil {
			return report(err)
		}
		fmt.Println(a.Name)
		select {
		case <-ended:
			return report(x.Close())
		default:
		}
	}
}

func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A child is an adder.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	told  *bufio.Scanner
}

func startAdder(t *testing.T, dir, who string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "INDEX_TEST_DIR="+dir, "INDEX_TEST_WHO="+who)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return &child{cmd, stdin, bufio.NewScanner(stdout)}
}

// next returns the name of the next source that it has added.
func (c *child) next(t *testing.T) string {
	t.Helper()
	if !c.told.Scan() {
		t.Fatalf("the other process ended: %v", c.cmd.Wait())
	}
	return c.told.Text()
}

// end ends it as it wants to end, and returns what it told of meanwhile.
func (c *child) end(t *testing.T) []string {
	t.Helper()
	c.stdin.Close()
	var rest []string
	for c.told.Scan() {
		rest = append(rest, c.told.Text())
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the other process: %v", err)
	}
	return rest
}

// TestProcesses: two processes add and one searches, at once; all that is told of is found.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := startAdder(t, dir, "ann", nil), startAdder(t, dir, "bob", nil)
	x := openIn(t, dir, Options{})
	var all []string
	for range 6 {
		for _, c := range []*child{a, b} {
			name := c.next(t)
			all = append(all, name)
			if f := find(t, x, Query{Text: "common", Source: name, Exact: true}); len(f.Hits) == 0 {
				t.Errorf("%s is not found", name)
			}
			add(t, x, Source{Label: "own"}, "kestrel\n")
		}
	}
	all = append(append(all, a.end(t)...), b.end(t)...)
	s := stats(t, x)
	for _, name := range all {
		if !slices.ContainsFunc(s.BySource, func(o SourceStats) bool { return o.Name == name }) {
			t.Errorf("%s is gone", name)
		}
	}
	intact(t, x)
}

// intact holds what is said of a base whatever happened to it.
func intact(t *testing.T, x *Index) {
	t.Helper()
	err := x.with(t.Context(), testBase, true, func(b *base) error {
		if err := errors.Join(x.sweep(t.Context(), b), b.removeGoing(t.Context())); err != nil {
			return err
		}
		var says string
		if err := b.write.QueryRow("PRAGMA integrity_check").Scan(&says); err != nil || says != "ok" {
			return fmt.Errorf("%s, %w", says, err)
		}
		for _, table := range []string{"found", "grams"} {
			if _, err := b.write.Exec(fmt.Sprintf("INSERT INTO %s(%[1]s) VALUES('integrity-check')", table)); err != nil {
				return err
			}
		}
		for what, query := range map[string]string{
			"chunks of no source": fmt.Sprintf("SELECT count(*) FROM chunks WHERE id >> %d NOT IN (SELECT id FROM sources)", rowBits),
			"half sources":        "SELECT count(*) FROM sources WHERE state <> 1",
			"wrong totals": `SELECT count(*) FROM totals WHERE sections <> (SELECT count(*) FROM chunks)
				OR sources <> (SELECT count(*) FROM sources) OR cost <> (SELECT coalesce(sum(cost), 0) FROM sources)`,
			"labels of no source":    "SELECT count(*) FROM labels WHERE label NOT IN (SELECT label FROM sources)",
			"words without trigrams": "SELECT count(*) - (SELECT count(*) FROM grams) FROM words",
			"chunks without words":   "SELECT count(*) - (SELECT count(*) FROM found) FROM chunks",
		} {
			var n int
			if err := b.write.QueryRow(query).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", what, n, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestKilled kills adders at any moment: what they told of is found, nothing is found by half, and nothing is damaged.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	told := map[string]bool{}
	anew := false
	o := Options{Rebuild: func(context.Context, Base, func(Source, io.Reader) error) error { anew = true; return nil }}
	for round := range sandboxtest.Scale(20) {
		who := fmt.Sprintf("r%d", round)
		c := startAdder(t, dir, who, nil)
		for range 1 + round%5 {
			told[c.next(t)] = true
		}
		time.Sleep(time.Duration(round*1371) * time.Microsecond) // no synchronization: any moment will do
		_ = c.cmd.Process.Kill()
		for c.told.Scan() {
			told[c.told.Text()] = true
		}
		_ = c.cmd.Wait()

		x := openIn(t, dir, o)
		for _, s := range stats(t, x).BySource {
			own, number, _ := strings.Cut(s.Name, "#")
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil {
				t.Fatal(err)
			}
			if want := int64(strings.Count(sourceText(own, n-1), "\n")); s.Lines != want {
				t.Errorf("%s has %d lines, want %d", s.Name, s.Lines, want)
			}
			delete(told, s.Name)
			told[s.Name] = false
		}
		for name, missing := range told {
			if missing {
				t.Errorf("round %d: %s is gone", round, name)
			}
		}
		if round%4 == 3 {
			intact(t, x)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if anew {
		t.Error("a base was taken for damaged")
	}
}

// TestHalfSources: what a killed process left half added is not found, and goes; what a living one adds stays.
func TestHalfSources(t *testing.T) {
	dir := t.TempDir()
	x, other := openIn(t, dir, Options{}), openIn(t, dir, Options{})
	add(t, x, Source{Label: "whole"}, "kestrel whole\n")
	started, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	var wait sync.WaitGroup
	defer wait.Wait()
	defer release()
	wait.Go(func() {
		slow := io.MultiReader(strings.NewReader(numbered("kestrel", 30_000)), readerFunc(func([]byte) (int, error) {
			close(started)
			<-goOn
			return 0, io.EOF
		}))
		if _, err := x.Add(t.Context(), testBase, Source{Label: "slow"}, slow); err != nil {
			t.Error(err)
		}
	})
	<-started
	// The state of a source whose adder was killed: there, half, and locked by nobody.
	err := other.with(t.Context(), testBase, true, func(b *base) error {
		_, err := b.write.Exec(`INSERT INTO sources(name, label, artifact, stream, made, state, sections, cost)
			VALUES('dead', '', '', '', ?, ?, 1, 1)`,
			time.Now().UnixNano(), stateAdding)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := sourcesOf(t, other, "kestrel kestrel1 common"); !slices.Equal(got, []string{"whole#1"}) {
		t.Errorf("found in %v", got)
	}
	add(t, other, Source{Label: "more"}, "sweeps\n")
	if n := countRows(t, other, "SELECT count(*) FROM sources WHERE name = 'dead'"); n != 0 {
		t.Error("the dead source is still there")
	}
	release()
	wait.Wait()
	if got := sourcesOf(t, other, "kestrel29999"); !slices.Equal(got, []string{"slow#1"}) {
		t.Errorf("found in %v: the living source was removed", got)
	}
	intact(t, x)
}

// TestConcurrent: many add, search and ask at once.
func TestConcurrent(t *testing.T) {
	sandboxtest.Leaks(t)
	x := openIndex(t, Options{})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 3 {
				add(t, x, Source{Label: fmt.Sprint("adder", i)}, numbered(fmt.Sprintf("adder%cx%dx", 'a'+i, n), 500))
			}
		})
		wait.Go(func() {
			for range 20 {
				for _, h := range find(t, x, Query{Text: "comon words", Limit: 5}).Hits {
					checkHit(t, h)
				}
				stats(t, x)
			}
		})
	}
	wait.Wait()
	if s := stats(t, x); s.Sources != 24 || s.Lines != 24*500 {
		t.Errorf("%d sources, %d lines", s.Sources, s.Lines)
	}
	intact(t, x)
}
