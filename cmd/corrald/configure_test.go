package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/job"
	"corral/policy/network"
	"corral/store/audit"
)

// TestDefaultsAgree: a missing configuration file means the same as an empty one.
func TestDefaultsAgree(t *testing.T) {
	d := config.Default()
	if d.UIDs != (config.UIDs{Base: host.DefaultUIDBase, Size: host.DefaultUIDSize}) {
		t.Errorf("user ids %#x+%#x, the supervisor's are %#x+%#x", d.UIDs.Base, d.UIDs.Size, host.DefaultUIDBase, host.DefaultUIDSize)
	}
	if d.Audit.Fsync != config.Group || d.Audit.MaxSize != audit.DefaultMaxSize || d.Audit.Keep != 16 || d.Audit.KeepFor != isolate.DefaultAuditKeepFor || d.Audit.UserDaily != audit.DefaultUserDaily {
		t.Errorf("audit %+v, the supervisor's is grouped, with files of %d bytes, 16 of them kept", d.Audit, audit.DefaultMaxSize)
	}
	if d.Defaults != job.Defaults() {
		t.Errorf("limits %+v, want %+v", d.Defaults, job.Defaults())
	}
}

func TestTake(t *testing.T) {
	no := false
	file := config.Default()
	owner := uint32(8)
	file.Repos = []config.Repo{{Path: "/srv/a", Users: []uint32{7}, Owner: &owner}, {Path: "/srv/b", Protect: job.ProtectHooks}}
	file.Toolchains, file.EtcFiles = []string{"/opt/go"}, []string{"/etc/x"}
	file.Ceilings.PIDs = 99
	file.JailIdle, file.MaxJobs, file.MaxJobsPerUser, file.MaxJails = time.Minute, 5, 3, 2
	file.Audit = config.Audit{Fsync: config.Each, MaxSize: 1 << 20, Keep: 3, KeepFor: time.Hour, UserDaily: 1 << 30, Record: job.RecordCode}
	closed := config.Default()
	closed.OwnDirectories = &no
	readonly, overlay, bound := job.ReadOnly, job.Overlay, job.Limits{PIDs: 9}
	file.Profiles = map[string]config.Profile{"tight": {Syscalls: "strict", Workspace: &readonly, Ceilings: job.Limits{PIDs: 10}}}
	file.Repos = append(file.Repos, config.Repo{Path: "/srv/c", Profile: "tight", Ceilings: bound}, config.Repo{Path: "/srv/d", Workspace: &overlay})
	served := []admit.Entry{
		{Path: "/srv/a", UIDs: []uint32{7}, Owner: &owner},
		{Path: "/srv/b", Protect: job.ProtectHooks},
		{Path: "/srv/c", Ceilings: bound, ReadOnly: true, Profile: "strict"},
		{Path: "/srv/d", Overlay: true},
	}
	tests := []struct {
		name       string
		args       []string
		file       config.Config
		repos      []admit.Entry
		toolchains []string
		own        bool
	}{
		{"nothing said", nil, config.Default(), nil, nil, true},
		{"command line", []string{"--repo", "/x", "--toolchain", "/t"}, config.Default(), []admit.Entry{{Path: "/x"}}, []string{"/t"}, false},
		{"file", nil, file, served, []string{"/opt/go"}, false},
		{
			"both",
			[]string{"--repo", "/x", "--toolchain", "/t"},
			file,
			append([]admit.Entry{{Path: "/x"}}, served...),
			[]string{"/opt/go", "/t"},
			false,
		},
		{"own directories closed", nil, closed, nil, nil, false},
		{"embedded", []string{"--embedded", "3", "--account", "0:0", "--repo", "/x", "--toolchain", "/shown"}, file, []admit.Entry{{Path: "/x"}}, []string{"/opt/go"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parse(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.take(tt.file); err != nil {
				t.Fatal(err)
			}
			s := o.supervisor
			if !reflect.DeepEqual(s.Repos, tt.repos) || !reflect.DeepEqual(s.Toolchains, tt.toolchains) || !slices.Equal(s.EtcFiles, tt.file.EtcFiles) || s.Own != tt.own {
				t.Errorf("serves %v, %v, own %t; want %v, %v, own %t", s.Repos, s.Toolchains, s.Own, tt.repos, tt.toolchains, tt.own)
			}
			if keep := s.Layers.Keep; keep != tt.file.Layers.Keep && o.embedded < 0 || keep > 0 && o.embedded >= 0 {
				t.Errorf("kept layers are removed after %v", keep)
			}
			if s.UIDBase != tt.file.UIDs.Base || s.UIDSize != tt.file.UIDs.Size || s.Defaults != tt.file.Defaults ||
				s.Ceilings != tt.file.Ceilings || s.JailIdle != tt.file.JailIdle || s.MaxJobs != tt.file.MaxJobs ||
				s.MaxPerUser != tt.file.MaxJobsPerUser || s.UserMemory != tt.file.UserMemory || s.MaxJails != tt.file.MaxJails ||
				s.Audit != (isolate.Audit{Each: tt.file.Audit.Fsync == config.Each, MaxSize: tt.file.Audit.MaxSize, Keep: tt.file.Audit.Keep, KeepFor: tt.file.Audit.KeepFor, UserDaily: tt.file.Audit.UserDaily, Record: tt.file.Audit.Record}) {
				t.Errorf("got %+v of %+v", s, tt.file)
			}
		})
	}
}

// TestTakeNetwork: each entry carries its rules, also those of the command line. An embedded supervisor has those for
// any repository, or what root named instead of what these allow.
func TestTakeNetwork(t *testing.T) {
	file := config.Default()
	file.Network = network.Rules{Allow: []network.Rule{{Preset: "npm"}}, Deny: []string{"evil.example.org"}}
	file.Repos = []config.Repo{
		{Path: "/srv/a"},
		{Path: "/srv/b", Network: &network.Rules{Allow: []network.Rule{{Host: "b.example.org"}}}},
		{Path: "/srv/c", Network: &network.Rules{Deny: []string{"example.org"}}},
	}
	const npm, b = `{"allow":[{"preset":"npm"}],"deny":["evil.example.org"]}`, `{"allow":[{"host":"b.example.org"}]}`
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"file":         {nil, []string{npm, b, ""}},
		"command line": {[]string{"--repo", "/x", "--repo", "/srv/b"}, []string{npm, b, npm, b, ""}},
		"embedded":     {[]string{"--embedded", "3", "--account", "0:0", "--repo", "/srv/b"}, []string{npm}},
		"embedded, with hosts": {
			[]string{"--embedded", "3", "--account", "0:0", "--repo", "/srv/a", "--network", "pypi example.org:22"},
			[]string{`{"allow":[{"preset":"pypi"},{"host":"example.org","ports":[22],"protocol":"tcp"}],"deny":["evil.example.org"]}`},
		},
		"embedded, without": {[]string{"--embedded", "3", "--account", "0:0", "--repo", "/srv/a", "--network", "none"}, []string{""}},
	} {
		o, err := parse(tt.args)
		if err == nil {
			err = o.take(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range o.supervisor.Repos {
			got = append(got, string(r.Network))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	file.NetworkCache.Size = 1 << 30
	file.Repos[1].Network.Allow = append(file.Repos[1].Network.Allow, network.Rule{Preset: "npm", Registry: "npm"})
	kept, err := parse(nil)
	if err == nil {
		err = kept.take(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := kept.supervisor.Repos; r[0].Requests != nil || r[1].Requests == nil || r[1].Requests.Keep != 1<<30 || kept.supervisor.Requests != nil {
		t.Errorf("what is kept: %+v", r)
	}
	file.Network.Deny = []string{"*"}
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.take(file); err == nil {
		t.Error("invalid rules were taken")
	}
}

func TestConfigure(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // the file must be root's
	path := filepath.Join(t.TempDir(), "config.yaml")
	configure := func() (isolate.Config, error) {
		o, err := parse([]string{"--config", path})
		if err != nil {
			t.Fatal(err)
		}
		err = o.configure()
		return o.supervisor, err
	}
	if _, err := configure(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file named with --config: %v", err)
	}
	for content, want := range map[string]string{
		"version: 1\nmax_jobs: 3\n": "", "version: 1\nmax_job: 3\n": "did you mean `max_jobs`?",
		"version: 1\nnetwork: {allow: [{host: \"*\"}]}\n": "`host`: \"*\" would be every host",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		switch s, err := configure(); {
		case want == "" && (err != nil || s.MaxJobs != 3):
			t.Errorf("%q: %+v, %v", content, s, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want an error with %q", content, err, want)
		}
	}
	// Entry files are read too, and must be root's.
	entry := filepath.Join(filepath.Dir(path), "repos.d", "app.yaml")
	if err := errors.Join(os.Mkdir(filepath.Dir(entry), 0o755), os.WriteFile(path, []byte("version: 1\nrepos: [{path: /srv/a}]\n"), 0o644),
		os.WriteFile(entry, []byte("path: /srv/b\nusers: [7]\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	want := []admit.Entry{{Path: "/srv/a"}, {Path: "/srv/b", UIDs: []uint32{7}}}
	if s, err := configure(); err != nil || !reflect.DeepEqual(s.Repos, want) || s.Own {
		t.Errorf("with an entry file: %+v, %v", s.Repos, err)
	}
	if err := os.Chown(entry, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if s, err := configure(); err == nil || !strings.Contains(err.Error(), "app.yaml belongs to user 1000") || s.Repos != nil {
		t.Errorf("with another user's entry file: %+v, %v", s.Repos, err)
	}
}

// TestConfigureAgain: a reload reads the files again, with the command line of the start, and keeps what belongs to the running
// supervisor. A file that is wrong by now is an error.
func TestConfigureAgain(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // the file must be root's
	path := filepath.Join(t.TempDir(), "config.yaml")
	to := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version: 1\n"+content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	to("max_jobs: 3\ntoolchains: [/opt/old]\nwarm_slots: 0\n")
	args := []string{"--config", path, "--repo", "/srv/named", "--toolchain", "/opt/mine", "--instance", "second"}
	o, err := parse(args)
	if err == nil {
		err = o.configure()
	}
	if err != nil || o.supervisor.MaxJobs != 3 || o.supervisor.Slots != -1 {
		t.Fatalf("%+v, %v", o, err)
	}
	o.args, o.supervisor.Programs, o.supervisor.Log = args, "/usr/lib/corral", slog.New(slog.DiscardHandler)
	to("max_jobs: 4\ntoolchains: [/opt/new]\nwarm_slots: 2\n")
	s, err := o.again()
	if err != nil || s.MaxJobs != 4 || s.Slots != 2 || !slices.Equal(s.Toolchains, []string{"/opt/new", "/opt/mine"}) {
		t.Errorf("the file was not read again: %+v, %v", s, err)
	}
	if s.Instance != "second" || len(s.Repos) != 1 || s.Repos[0].Path != "/srv/named" || s.Programs != "/usr/lib/corral" || s.Log != o.supervisor.Log {
		t.Errorf("not that of the running supervisor: %+v", s)
	}
	to("max_jobs: none\n")
	if s, err := o.again(); err == nil || !strings.Contains(err.Error(), "max_jobs") || s.MaxJobs != 0 {
		t.Errorf("a wrong file: %+v, %v", s, err)
	}
}
