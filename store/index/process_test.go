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

	"corral/internal/test/sandboxtest"
)

// TestMain runs as another process that uses the index, if the environment says so.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("INDEX_TEST_MEMORY") != "":
		os.Exit(measureAdd())
	case os.Getenv("INDEX_TEST_DIR") != "":
		os.Exit(adder())
	}
	os.Exit(m.Run())
}

// sourceText returns the text of the nth source of an adder. Each line contains a word that identifies the source.
func sourceText(prefix string, n int) string {
	return numbered(fmt.Sprintf("%sx%dx", prefix, n), []int{5, 400, 8000 / RaceScale}[n%3])
}

// adder adds sources and prints the name of each, until it is killed or its standard input ends.
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
	prefix := os.Getenv("INDEX_TEST_PREFIX")
	for n := 0; ; n++ {
		a, err := x.Add(context.Background(), testBase, Source{Label: prefix}, strings.NewReader(sourceText(prefix, n)))
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

// A child is an adder process.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	printed *bufio.Scanner
}

func startAdder(t *testing.T, dir, prefix string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "INDEX_TEST_DIR="+dir, "INDEX_TEST_PREFIX="+prefix)
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

// next returns the name of the next source that the child has added.
func (c *child) next(t *testing.T) string {
	t.Helper()
	if !c.printed.Scan() {
		t.Fatalf("the other process ended: %v", c.cmd.Wait())
	}
	return c.printed.Text()
}

// end stops the child in order, and returns the names that it printed meanwhile.
func (c *child) end(t *testing.T) []string {
	t.Helper()
	c.stdin.Close()
	var rest []string
	for c.printed.Scan() {
		rest = append(rest, c.printed.Text())
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the other process: %v", err)
	}
	return rest
}

// TestProcesses checks that all sources are found while two processes add and one searches.
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
			t.Errorf("%s is missing", name)
		}
	}
	checkIntact(t, x)
}

// checkIntact checks invariants of a base.
func checkIntact(t *testing.T, x *Index) {
	t.Helper()
	err := x.with(t.Context(), testBase, true, func(b *base) error {
		if err := errors.Join(x.sweep(t.Context(), b), removeMarked(t.Context(), b.database)); err != nil {
			return err
		}
		var says string
		if err := b.Write.QueryRow("PRAGMA integrity_check").Scan(&says); err != nil || says != "ok" {
			return fmt.Errorf("%s, %w", says, err)
		}
		for _, table := range []string{"found", "grams"} {
			if _, err := b.Write.Exec(fmt.Sprintf("INSERT INTO %s(%[1]s) VALUES('integrity-check')", table)); err != nil {
				return err
			}
		}
		for what, query := range map[string]string{
			"chunks of no source": fmt.Sprintf("SELECT count(*) FROM found WHERE rowid >> %d NOT IN (SELECT id FROM sources)", rowBits),
			"half sources":        "SELECT count(*) FROM sources WHERE state <> 1",
			"wrong totals": `SELECT count(*) FROM totals WHERE sections <> (SELECT count(*) FROM found)
				OR sources <> (SELECT count(*) FROM sources) OR cost <> (SELECT coalesce(sum(cost), 0) FROM sources)`,
			"labels of no source":    "SELECT count(*) FROM labels WHERE label NOT IN (SELECT label FROM sources)",
			"words without trigrams": "SELECT count(*) - (SELECT count(*) FROM grams) FROM words",
		} {
			var n int
			if err := b.Write.QueryRow(query).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", what, n, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestKilled kills adders at arbitrary moments. It checks that completed sources are found, that no incomplete one is,
// and that the base is not damaged.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	printed := map[string]bool{}
	rebuilt := false
	o := Options{Rebuild: func(context.Context, Base, func(Source, io.Reader) error) error { rebuilt = true; return nil }}
	for round := range sandboxtest.Scale(20) {
		prefix := fmt.Sprintf("r%d", round)
		c := startAdder(t, dir, prefix, nil)
		for range 1 + round%5 {
			printed[c.next(t)] = true
		}
		time.Sleep(time.Duration(round*1371) * time.Microsecond) // kill at an arbitrary moment
		_ = c.cmd.Process.Kill()
		for c.printed.Scan() {
			printed[c.printed.Text()] = true
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
			delete(printed, s.Name)
			printed[s.Name] = false
		}
		for name, missing := range printed {
			if missing {
				t.Errorf("round %d: %s is missing", round, name)
			}
		}
		if round%4 == 3 {
			checkIntact(t, x)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if rebuilt {
		t.Error("a base was treated as damaged")
	}
}

// TestIncompleteSources checks that an incomplete source of a killed process is not found and is removed, while that of a
// running process is kept.
func TestIncompleteSources(t *testing.T) {
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
	// The state after an adder was killed: present, incomplete, and not locked.
	err := other.with(t.Context(), testBase, true, func(b *base) error {
		_, err := b.Write.Exec(`INSERT INTO sources(name, label, artifact, stream, made, state, sections, cost)
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
		t.Error("the source of the killed process was not removed")
	}
	release()
	wait.Wait()
	if got := sourcesOf(t, other, "kestrel29999"); !slices.Equal(got, []string{"slow#1"}) {
		t.Errorf("found in %v: the source of the running process was removed", got)
	}
	checkIntact(t, x)
}

// TestConcurrent runs many operations at once.
func TestConcurrent(t *testing.T) {
	sandboxtest.Leaks(t)
	const lines = 500 / RaceScale
	x := openIndex(t, Options{})
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 3 {
				add(t, x, Source{Label: fmt.Sprint("adder", i)}, numbered(fmt.Sprintf("adder%cx%dx", 'a'+i, n), lines))
			}
		})
		wait.Go(func() {
			for range 1 + 20/RaceScale {
				for _, h := range find(t, x, Query{Text: "comon words", Limit: 5}).Hits {
					checkHit(t, h)
				}
				stats(t, x)
			}
		})
	}
	wait.Wait()
	if s := stats(t, x); s.Sources != 24 || s.Lines != 24*lines {
		t.Errorf("%d sources, %d lines", s.Sources, s.Lines)
	}
	checkIntact(t, x)
}
