package job

import (
	"slices"
	"testing"
)

// TestRuntimeNamed: each runtime has its own name, and synonyms mean one of them.
func TestRuntimeNamed(t *testing.T) {
	for _, name := range Runtimes() {
		if got := RuntimeNamed(name); got != name {
			t.Errorf("%s means %q", name, got)
		}
	}
	for name, runtime := range synonyms {
		if !slices.Contains(Runtimes(), runtime) || slices.Contains(Runtimes(), name) {
			t.Errorf("%s means %q", name, runtime)
		}
	}
	for name, want := range map[string]string{"Bash": "shell", " JavaScript ": "node", "node": "node", "pytest": "", "": ""} {
		if got := RuntimeNamed(name); got != want {
			t.Errorf("%q means %q, want %q", name, got, want)
		}
	}
}

// TestProgramNamed: a program is known by its name and by its path, and no runtime is one.
func TestProgramNamed(t *testing.T) {
	for _, name := range []string{"pytest", "/usr/local/bin/pytest", "PyTest"} {
		if command, args := ProgramNamed(name); command != "python3 -m pytest" || !slices.Equal(args, []string{"-m", "pytest"}) {
			t.Errorf("%q: %q, %q", name, command, args)
		}
	}
	if command, args := ProgramNamed("npm"); command != "npm …" || args != nil {
		t.Errorf("npm: %q, %q", command, args)
	}
	for name := range programs {
		if RuntimeNamed(name) != "" {
			t.Errorf("%s is a runtime", name)
		}
	}
	if command, _ := ProgramNamed("nothing"); command != "" {
		t.Errorf("%q", command)
	}
}
