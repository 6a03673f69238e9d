package fault

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestContain: a panic becomes an error, is counted, and has its stack in the log. An error stays as it is.
func TestContain(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	before, own := Contained(), errors.New("own")
	undone := false
	err := Contain(log, "a job", func() error {
		defer func() { undone = true }()
		return map[string]func() error{}["x"]()
	}, "job", "job-1")
	if !errors.Is(err, ErrInternal) || !undone || Contained() != before+1 || err.Error() != "a job: "+ErrInternal.Error() { // for clients
		t.Errorf("%v, undone: %v, counted: %d", err, undone, Contained()-before)
	}
	for _, want := range []string{"in=\"a job\"", "job=job-1", "nil pointer", "fault_test.go"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q: %s", want, out.String())
		}
	}
	if err := Contain(log, "a job", func() error { return own }); err != own { //nolint:errorlint // it is returned unchanged
		t.Error(err)
	}
	if Do(log, "x", func() {}) || !Do(log, "x", func() { panic("x") }) {
		t.Error("Do reports something else")
	}
}

// childVar has the test binary play a process that panics in one of these ways.
const childVar = "CORRAL_TEST_FAULT"

var ways = map[string]func(m *Mutex){
	"deferred": func(m *Mutex) {
		m.Lock()
		defer m.Unlock()
		panic("broken")
	},
	"in With": func(m *Mutex) { With(m, func() { panic("broken") }) },
	"in Get":  func(m *Mutex) { Get(m, func() int { panic("broken") }) },
	"two locks": func(m *Mutex) {
		m.Lock()
		defer m.Unlock()
		var own sync.Mutex
		own.Lock()
		defer own.Unlock()
		var p *int
		*p = 1
	},
	"End": func(m *Mutex) {
		defer End()
		With(m, func() {})
		func() { panic("broken") }()
	},
}

// TestSharedEnds: a panic ends the process, whoever would contain it, while a lock of shared state is held or below End.
func TestSharedEnds(t *testing.T) {
	if way := os.Getenv(childVar); way != "" {
		var m Mutex
		Do(slog.New(slog.DiscardHandler), "a job", func() { ways[way](&m) })
		os.Exit(0)
	}
	for way := range ways {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSharedEnds$") //nolint:gosec // this test
		cmd.Env = append(os.Environ(), childVar+"="+way)
		out, err := cmd.CombinedOutput()
		var exited *exec.ExitError
		if !errors.As(err, &exited) || exited.ExitCode() != 2 || !strings.Contains(string(out), "in shared state") ||
			!strings.Contains(string(out), "fault_test.go") {
			t.Errorf("%s: %v, %s", way, err, out)
		}
	}
}

// TestUnlockedContained: a lock that was released before the panic ends nothing, nor does one that a deferred function takes
// meanwhile, and all are free afterwards.
func TestUnlockedContained(t *testing.T) {
	var m Mutex
	log := slog.New(slog.DiscardHandler)
	if !Do(log, "a job", func() {
		defer With(&m, func() {})
		defer func() {
			m.Lock()
			defer m.Unlock()
		}()
		With(&m, func() {})
		panic("x")
	}) {
		t.Error("no panic was contained")
	}
	With(&m, func() {})
}
