package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// An exampleConfig is a configuration that a page shows.
type exampleConfig struct {
	where string            // page and line
	files map[string]string // below /etc/corral, by name
}

// others are blocks of YAML that are no configuration of corral, by their first line.
var others = map[string]string{
	"receivers:":  "a collector's",
	"rule_files:": "Prometheus's",
	"extensions:": "Goose's",
	"build:":      "GitLab's",
	"jobs:":       "GitHub's",
	"steps:":      "Buildkite's",
	"max_jobs: 4": "part of an entry of principals.d",
	"service:":    "Fluent Bit's",

	"data_dir: /var/lib/vector": "Vector's",
}

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml[^\n]*\n(.*?)^ *```$")

// pageExamples returns the configurations of all pages.
func pageExamples(t *testing.T) (list []exampleConfig) {
	t.Helper()
	pages := []string{"../../README.md", "../../SECURITY.md"}
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllSubmatchIndex(text, -1) {
			where := fmt.Sprintf("%s:%d", strings.TrimPrefix(page, "../../"), 1+bytes.Count(text[:m[0]], []byte("\n")))
			block := "\n" + string(text[m[4]:m[5]])
			block = strings.ReplaceAll(block, "\n"+string(text[m[2]:m[3]]), "\n")[1:]
			list = append(list, examplesIn(where, block)...)
		}
	}
	return list
}

// examplesIn returns a block as a configuration; an entry's rules also as those of all directories, because doctor's own has no entry.
func examplesIn(where, block string) []exampleConfig {
	first, _, _ := strings.Cut(strings.TrimLeft(regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(block, ""), "\n"), "\n")
	config := "version: 1\n" + strings.Replace(block, "version: 1\n", "", 1)
	switch {
	case others[first] != "":
		return nil
	case strings.HasPrefix(first, "path:"):
		return []exampleConfig{{where, map[string]string{"config.yaml": "version: 1\n", "repos.d/example.yaml": block}}}
	case strings.HasPrefix(first, "name:"):
		return []exampleConfig{{where, map[string]string{"config.yaml": "version: 1\n", "principals.d/example.yaml": block}}}
	}
	list := []exampleConfig{{where, map[string]string{"config.yaml": config}}}
	if m := regexp.MustCompile(`(?m)^    network:\n(?:^      .*\n)+`).FindString(block); m != "" {
		m = strings.ReplaceAll("\n"+m, "\n    ", "\n")[1:]
		list = append(list, exampleConfig{where + ", rules of an entry", map[string]string{"config.yaml": "version: 1\n" + m}})
	}
	return list
}

// forJobs reports whether a configuration has settings with which the supervisor runs jobs.
func (x exampleConfig) forJobs() bool {
	return regexp.MustCompile(`(?m)^(network|ceilings|profiles):`).MatchString(x.files["config.yaml"])
}

// write makes the configuration that of this machine, with the files that it names.
func (x exampleConfig) write(t *testing.T) {
	t.Helper()
	list, _ := filepath.Glob("/etc/corral/*")
	for _, old := range list {
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
	}
	files := maps.Clone(x.files)
	for _, m := range regexp.MustCompile(`file: /etc/corral/(secrets/[a-z-]+)`).FindAllStringSubmatch(x.files["config.yaml"], -1) {
		files[m[1]] = "abcdefghijklmnop\n"
	}
	for name, text := range files {
		path := filepath.Join("/etc/corral", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".yaml") {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mountOver mounts over a path until the end of the test, in the private mount namespace of this process and its children.
func mountOver(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestPages: the configurations that pages show are valid, and doctor finds nothing with them that it does not find without.
func TestPages(t *testing.T) {
	sandboxtest.RequireJails(t)
	if _, err := os.Stat("/etc/corral"); errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir("/etc/corral", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove("/etc/corral") })
	}
	accounts, err := os.ReadFile("/etc/passwd")
	passwd := filepath.Join(t.TempDir(), "passwd")
	accounts = append(accounts, "ada:x:61234:61234::/:/bin/sh\nbuild:x:61235:61235::/:/bin/sh\ncorral-serve:x:61236:61236::/:/bin/sh\n"...)
	if err = errors.Join(err, os.WriteFile(passwd, accounts, 0o644)); err != nil {
		t.Fatal(err)
	}
	mountOver(t, passwd, "/etc/passwd", "", unix.MS_BIND, "")
	mountOver(t, "corral-test", "/etc/corral", "tmpfs", 0, "mode=755")
	before := found(t)
	examined := 0
	for _, x := range pageExamples(t) {
		t.Run(x.where, func(t *testing.T) {
			x.write(t)
			if out, err := exec.Command(sandboxtest.Bin(t, "corral-front"), "config", "check").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if !x.forJobs() && !sandboxtest.Soak() {
				return
			}
			examined++
			for check, detail := range found(t) {
				if before[check] == "" {
					t.Errorf("%s: %s", check, detail)
				}
			}
		})
	}
	if examined < 9 {
		t.Errorf("only %d configurations were examined", examined)
	}
}

// found returns what doctor finds, by check. What depends on time is left out: the machine of the tests is busy.
func found(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), "doctor", "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its code depends on the machine
	var r Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s, %s", err, &stdout, &stderr)
	}
	list := map[string]string{}
	for _, c := range r.Checks {
		if c.Status != OK && !slices.Contains([]string{"start", "deadline", "CPU limit"}, c.Name) {
			list[c.Name] = fmt.Sprintf("%s: %s (%s)", c.Status, c.Detail, stderr.String())
		}
	}
	return list
}
