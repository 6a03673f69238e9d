package agent

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
)

// TestNoNetwork checks that a reply says so when a program failed because it has no network. The output of npm was recorded in a
// jail; the others are lines as their programs are known to write them.
func TestNoNetwork(t *testing.T) {
	for output, want := range map[string]string{
		"npm error code EAI_AGAIN\nnpm error request to https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\n": "https://registry.npmjs.org/left-pad",
		"ERROR: Could not find a version that satisfies the requirement flask (from versions: none)\nERROR: No matching distribution found for flask\n": "flask",
		"go: github.com/x/y@v1.2.3: module lookup disabled by GOPROXY=off\n":                                                                            "github.com/x/y@v1.2.3",
		"a.go:3:8: no required module provides package example.com/z; to add it:\n":                                                                     "example.com/z",
		"error: failed to download from `https://index.crates.io/config.json`\n":                                                                        "https://index.crates.io/config.json",
		"curl: (6) Could not resolve host: example.com\n":                                                                                               "example.com",
		"socket.gaierror: [Errno -3] Temporary failure in name resolution\n":                                                                            "what is missing",
		"Temporary failure resolving 'deb.debian.org'\n":                                                                                                "deb.debian.org",
		"--- FAIL: TestTotal\n": "",
	} {
		f := mcptest.NewFakeRunner()
		f.ExitsWith(1).Stderr = output
		r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`)
		_, said, has := strings.Cut(r.Text, ", there is no network here: ask the user to install or provide ")
		if has != (want != "") || has && said != want+"]" {
			t.Errorf("%q: %q", output, r.Text)
		}
	}
	f := mcptest.NewFakeRunner()
	f.Stdout = "Could not resolve host: example.com\n"
	if r := call(t, &Run{newSuite(t, f)}, `{"code":"cat log"}`); strings.Contains(r.Text, "no network") {
		t.Errorf("of a command that succeeded: %q", r.Text)
	}
}
