package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestDivide: every test is in one batch, long ones alone and first, short ones together.
func TestDivide(t *testing.T) {
	p := testPackage{path: "corral/a"}
	tm := &times{seconds: map[string]float64{"a.TestLong": 30, "a.TestHalf": batchSeconds / 2, "a.TestOtherHalf": batchSeconds / 2}}
	tests := []string{"TestShort1", "TestHalf", "TestShort2", "TestLong", "TestOtherHalf"}
	var got []string
	for _, b := range tm.divide(p, tests) {
		got = append(got, strings.Join(b.tests, " "))
	}
	if want := []string{"TestLong", "TestHalf TestOtherHalf", "TestShort1 TestShort2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if list := tm.divide(p, nil); len(list) > 0 {
		t.Errorf("batches of nothing: %v", list)
	}
}

// TestEarly: the packages of the guest and those with long tests are built before the others.
func TestEarly(t *testing.T) {
	t.Chdir("../..")
	list := []testPackage{{path: module + "/job"}, {path: module + "/cgroup"}, {path: module + "/slow"}, {path: module + "/slow/below"}}
	tm := &times{seconds: map[string]float64{"slow.TestOne": longSeconds / 2, "slow.TestTwo": longSeconds / 2, "slow/below.TestOne": 1}}
	for guest, want := range map[bool]string{true: "cgroup slow | job slow/below", false: "slow | job cgroup slow/below"} {
		early, later, err := (&runner{options: &options{guest: guest}, times: tm}).early(list)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range early {
			got = append(got, p.short())
		}
		got = append(got, "|")
		for _, p := range later {
			got = append(got, p.short())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("with a guest %t: %s, want %s", guest, s, want)
		}
	}
}

// TestJobs: a run of some packages has two test processes for each processor, one beside the guest or in a soak fewer; after the guest
// as many as without it. An option says otherwise.
func TestJobs(t *testing.T) {
	for _, tt := range []struct {
		o    options
		want int
	}{
		{options{mode: "all"}, 8},
		{options{mode: "unit"}, 8},
		{options{mode: "all", guest: true}, 5},
		{options{mode: "soak"}, 5},
	} {
		if got := tt.o.usualJobs(4, tt.o.guest); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.o, got, tt.want)
		}
	}
	few, many := 1+runtime.NumCPU(), 2*runtime.NumCPU()
	for args, want := range map[string][2]int{
		"-jobs 3": {3, 3}, "-guest -jobs 3": {3, 3}, "": {many, many}, "-guest": {few, many}, "soak": {few, few},
	} {
		if o, err := parse(strings.Fields(args)); err != nil || o.jobs != want[0] || o.after != want[1] {
			t.Errorf("%q: %+v, %v, want %d jobs", args, o, err, want)
		}
	}
}

// TestRaceChoice: with -race, machine tests run with the race detector where raceToo says so; all of them in a soak and in a run of
// some tests, if the package has any.
func TestRaceChoice(t *testing.T) {
	isolate, units := testPackage{path: module + "/isolate", machine: true}, testPackage{path: module + "/job"}
	programs := testPackage{path: module + "/cmd/corral", machine: true}
	for _, tt := range []struct {
		o    options
		p    testPackage
		want string
	}{
		{options{mode: "all", detector: true}, isolate, raceToo["isolate"]},
		{options{mode: "all", detector: true}, units, ""},
		{options{mode: "all", detector: true}, programs, ""},
		{options{mode: "all"}, isolate, ""},
		{options{mode: "soak", detector: true}, isolate, "."},
		{options{mode: "soak", detector: true}, units, ""},
		{options{mode: "soak", detector: true}, programs, ""},
		{options{mode: "all", run: "TestX", detector: true}, isolate, "."},
		{options{mode: "all", run: "TestX", detector: true}, programs, ""},
		{options{mode: "all", run: "TestX"}, isolate, ""},
	} {
		if got := (&runner{options: &tt.o}).raceChoice(tt.p); got != tt.want {
			t.Errorf("%+v, %s: %q, want %q", tt.o, tt.p.path, got, tt.want)
		}
	}
}

// TestRaceOption: a run has the race detector if it is asked for; a whole soak always, a run for coverage never.
func TestRaceOption(t *testing.T) {
	for args, want := range map[string]bool{
		"all": false, "all -race": true, "all -race -run TestX": true, "soak": true, "soak -run TestX": false,
		"all -race -cover coverage.out": false, "soak -cover coverage.out": false,
	} {
		if o, err := parse(strings.Fields(args)); err != nil || o.detector != want {
			t.Errorf("%q: %+v, %v, want race %v", args, o, err, want)
		}
	}
}

// TestRacedOnce: in `make test` each machine test is in one batch, with the race detector or without; in a soak, those with it
// are also in one without.
func TestRacedOnce(t *testing.T) {
	p := testPackage{path: module + "/isolate", machine: true}
	for mode, want := range map[string][]string{
		"all":  {"true TestAudit TestClose", "false TestLayers"},
		"soak": {"true TestAudit TestClose TestLayers", "false TestAudit TestClose TestLayers"},
	} {
		r := &runner{options: &options{mode: mode, detector: true}, times: &times{seconds: map[string]float64{}}}
		list, err := r.machineBatches(t.Context(), p, []string{"TestAudit", "TestClose", "TestLayers"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range list {
			got = append(got, fmt.Sprint(b.race, " ", strings.Join(b.tests, " ")))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

func TestTimesAreKept(t *testing.T) {
	dir := t.TempDir()
	p := testPackage{path: "corral/a"}
	tm := loadTimes(dir)
	tm.add(p, "TestX", 7)
	tm.save()
	if got := loadTimes(dir).of(p, "TestX"); got != 7 {
		t.Errorf("%v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "times.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := loadTimes(dir).of(p, "TestX"); got != usualSeconds {
		t.Errorf("of a broken file: %v", got)
	}
}

// TestQueue: a queue runs up to its limit in parallel, the longest waiting batch first, and a running batch may add others.
func TestQueue(t *testing.T) {
	q := newQueue(2)
	var mu sync.Mutex
	var order []string
	most, now := 0, 0
	hold := make(chan struct{})
	work := func(wait bool) func(batch) {
		return func(b batch) {
			mu.Lock()
			order = append(order, b.pkg.path)
			now++
			most = max(most, now)
			mu.Unlock()
			if wait {
				<-hold
			}
			mu.Lock()
			now--
			mu.Unlock()
		}
	}
	q.add(batch{pkg: testPackage{path: "first"}}, work(true))
	q.add(batch{pkg: testPackage{path: "second"}}, work(true))
	q.add(batch{pkg: testPackage{path: "short"}, weight: 1}, work(false))
	q.add(batch{pkg: testPackage{path: "long"}, weight: 9}, func(b batch) {
		work(false)(b)
		q.add(batch{pkg: testPackage{path: "added"}, weight: 5}, work(false))
	})
	hold <- struct{}{} // one is free: what waits runs one after the other
	for {
		mu.Lock()
		n := len(order)
		mu.Unlock()
		if n == 5 {
			break
		}
	}
	close(hold)
	q.wait()
	order = slices.DeleteFunc(order, func(name string) bool { return name == "first" || name == "second" })
	if want := []string{"long", "added", "short"}; !slices.Equal(order, want) || most > 2 {
		t.Errorf("%q, %d at a time", order, most)
	}
}

// TestQueueWidened: what waits for a place starts when there are more.
func TestQueueWidened(t *testing.T) {
	q := newQueue(1)
	meet := make(chan struct{})
	q.add(batch{}, func(batch) { <-meet })
	q.add(batch{}, func(batch) { close(meet) })
	select {
	case <-meet:
		t.Error("two batches run, one more than the limit")
	default:
	}
	q.widen(2)
	q.wait()
}

// TestPackages: the binaries of packages have distinct names, and the lists of packages agree with the module.
func TestPackages(t *testing.T) {
	list, err := listPackages(t.Context(), []string{"corral/..."})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range list {
		if names[p.binary()] {
			t.Errorf("two packages have the binary %s", p.binary())
		}
		names[p.binary()] = true
	}
	for _, w := range withoutRace {
		if !slices.ContainsFunc(list, func(p testPackage) bool { return p.short() == w.tree || strings.HasPrefix(p.short(), w.tree+"/") }) {
			t.Errorf("%s, said to be without races, has no tests", w.tree)
		}
		if w.reason == "" {
			t.Errorf("%s is not looked at for races without a reason", w.tree)
		}
	}
	for line := range strings.Lines(usualTimes) {
		name, _, _ := strings.Cut(line, " ")
		pkg, _, _ := strings.Cut(name, ".")
		if !slices.ContainsFunc(list, func(p testPackage) bool { return p.short() == pkg }) {
			t.Errorf("times.txt has %s", name)
		}
	}
}

func TestStartGoroutines(t *testing.T) {
	for body, want := range map[string]bool{
		"func f() { go f() }":                                              true,
		"func f() { (&sync.WaitGroup{}).Go(f) }":                           true,
		"func f() { time.AfterFunc(0, f) }":                                true,
		"func TestF(t *testing.T) { t.Parallel() }":                        true,
		`import "net/http/httptest"; func f() { httptest.NewServer(nil) }`: true,
		`import "net"; func f() { gone := net.IPv4zero; _ = gone }`:        false,
		"// go f() is a comment":                                           false,
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"none.go": "package a", "a_test.go": "package a; " + body} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := startGoroutines(dir, []string{"none.go", "a_test.go"}); got != want || err != nil {
			t.Errorf("%s: %t, %v", body, got, err)
		}
	}
	if _, err := startGoroutines(t.TempDir(), []string{"missing.go"}); err == nil {
		t.Error("a missing file starts none")
	}
}

// TestCoverage: what several processes covered is added up, whichever of them did, and a file that a killed one left is passed over.
func TestCoverage(t *testing.T) {
	source := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module m\n\ngo 1.25\n",
		"main.go": "package main\n\nimport \"os\"\n\nfunc main() {\n\tif len(os.Args) > 1 {\n\t\tprintln(1)\n\t} else {\n\t\tprintln(2)\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program, profile := filepath.Join(source, "m"), filepath.Join(source, "profile")
	build := exec.Command("go", slices.Concat([]string{"build"}, compileFlags(), []string{"-cover", "-o", program, "."})...)
	build.Dir, build.Env = source, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir, err := makeCoverDir()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, args := range [][]string{nil, {"x"}} {
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"GOCOVERDIR=" + dir}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
	}
	counters, err := filepath.Glob(filepath.Join(dir, "covcounters.*"))
	if err != nil || len(counters) != 2 {
		t.Fatalf("%q, %v", counters, err)
	}
	cut := strings.TrimSuffix(counters[0], filepath.Ext(counters[0])) + ".1" // the time in its name
	if err := os.WriteFile(cut, []byte("begun"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := writeProfile(t.Context(), dir, profile, &out); err != nil || !strings.Contains(out.String(), "coverage: 100.0% of statements") {
		t.Errorf("%v: %s", err, out.String())
	}
	if b, err := os.ReadFile(profile); err != nil || strings.Contains(string(b), " 0\n") || strings.Count(string(b), "main.go:") < 3 {
		t.Errorf("%s, %v", b, err)
	}
}
