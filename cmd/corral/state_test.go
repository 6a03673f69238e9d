package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestLeakedDescriptors: descriptors that corral's caller left open reach neither the job nor the supervisor.
func TestLeakedDescriptors(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo := repository(t)
	secret, err := os.Open(filepath.Join(repo, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	cmd := command(t, "run", "--repo", repo, "--stdin", "--", "sh", "-c", "ls /proc/self/fd | wc -l; echo ready; read line")
	for range 50 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, secret)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd)
	p.ready(t)
	if got := p.Out.String(); got != "4\nready\n" {
		t.Errorf("the job has other descriptors than its own: %q", got)
	}
	links, err := filepath.Glob("/proc/" + strconv.Itoa(supervisor(t, p.Process.Pid)) + "/fd/*")
	if err != nil || len(links) == 0 {
		t.Errorf("%q, %v", links, err)
	}
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasSuffix(target, "/plain") {
			t.Errorf("the supervisor has it: %s", link)
		}
	}
	input.Close()
	if got := p.ends(t); got.code != 1 { // read reached the end of the file
		t.Errorf("%+v", got)
	}
}

// TestDropsRoot: while the job runs, corral has an unprivileged user, no groups and no way back; only its supervisor is
// root.
func TestDropsRoot(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, tt := range []struct {
		env  []string
		want string // the user id; "" is any except root's
	}{
		{nil, ""},
		{[]string{"SUDO_UID=61234", "SUDO_GID=61235"}, "61234"},
		{[]string{"SUDO_UID=0", "SUDO_GID=0"}, ""},
	} {
		cmd := command(t, "run", "--repo", repository(t), "--stdin", "--", "sh", "-c", "echo ready; read line")
		cmd.Env = append(cmd.Env, tt.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{0, 4}}}
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, cmd)
		p.ready(t)
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(p.Process.Pid) + "/task/*/status")
		if len(tasks) == 0 {
			t.Error("no thread")
		}
		for _, task := range tasks {
			checkThread(t, task, tt.want)
		}
		input.Close()
		p.ends(t)
	}
}

func checkThread(t *testing.T, file, uid string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return // the thread has ended
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Fields(value)
	}
	for _, name := range []string{"Uid", "Gid"} {
		for _, id := range got[name] {
			if id == "0" || name == "Uid" && uid != "" && id != uid {
				t.Errorf("%s: %s: %q", file, name, got[name])
			}
		}
	}
	if len(got["Groups"]) != 0 || got["NoNewPrivs"][0] != "1" || strings.Trim(got["CapPrm"][0]+got["CapEff"][0], "0") != "" {
		t.Errorf("%s: groups %q, no_new_privs %q, capabilities %q %q", file, got["Groups"], got["NoNewPrivs"], got["CapPrm"], got["CapEff"])
	}
}
