package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// denied is the use of the network by a job that asked for hosts in vain.
var denied = &job.NetworkUse{
	Connections: 1, Denied: 5, BytesUp: 10, BytesDown: 20,
	Denials: []job.NetworkDenial{
		{Name: "example.org", Port: 443, Why: "no rule allows it", Allow: "{host: example.org}", Count: 3},
		{Name: "telemetry.example.org", Why: "a rule denies it", Count: 1},
	},
}

func TestDeniedHosts(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  *job.NetworkUse
		want []string
	}{
		{"no network", nil, nil},
		{"all allowed", &job.NetworkUse{Connections: 3, BytesUp: 1}, nil},
		{"denied", denied, []string{
			"corral: network: example.org:443 denied 3 times: no rule allows it; to allow it: {host: example.org}",
			"corral: network: telemetry.example.org denied: a rule denies it",
			"corral: network: and 1 more denied",
			"hint: ask the operator to add such a rule to network.allow of the repository in corral's configuration",
		}},
		{"no rule would do", &job.NetworkUse{Denied: 1, Denials: denied.Denials[1:]}, []string{
			"corral: network: telemetry.example.org denied: a rule denies it",
		}},
		{"no names", &job.NetworkUse{Denied: 2}, []string{"corral: network: 2 connections or names denied"}},
	} {
		got := printed(t, &os.Stderr, func() {
			printOutcome(job.Result{Status: job.Success, Network: tt.use}, &runOptions{}, &streams{})
		})
		if want := strings.Join(append(tt.want, ""), "\n"); got != want {
			t.Errorf("%s:\n%swant\n%s", tt.name, got, want)
		}
	}
}

// TestNetworkInJSON: --json has what the job reached, and no key for it if the job had no network access.
func TestNetworkInJSON(t *testing.T) {
	for use, want := range map[*job.NetworkUse]string{
		nil: "",
		denied: `{"connections":1,"denied":5,"bytesUp":10,"bytesDown":20,"denials":[` +
			`{"name":"example.org","port":443,"why":"no rule allows it","allow":"{host: example.org}","count":3},` +
			`{"name":"telemetry.example.org","why":"a rule denies it","count":1}]}`,
	} {
		b, err := json.Marshal(resultObject(job.Result{Network: use}, &runOptions{}, &streams{}))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Network json.RawMessage `json:"network"`
		}
		if err := json.Unmarshal(b, &got); err != nil || string(got.Network) != want {
			t.Errorf("%s, %v, want %s", got.Network, err, want)
		}
	}
}

// TestNetworkLog: corral network log has what a job was denied, with the rule that would allow it.
func TestNetworkLog(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("getent"))
	d := &daemon{sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Config: "network: {allow: [{host: allowed.example.org}]}\n"})}
	repo := repository(t)
	run := func(name string) {
		t.Helper()
		line := "getent hosts " + name + "; true"
		if got := corral(t, "run", "--supervisor", d.Socket, "--repo", repo, "--", "sh", "-c", line); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	run("allowed.example.org")
	run("denied.example.org")
	got := corral(t, "network", "log", "--denied", "--state", d.State)
	lines := strings.Split(got.stdout, "\n")
	if got.code != 0 || len(lines) != 3 || !strings.Contains(lines[0], " uid=0 repo="+repo+" claimed.tool=run: 0 connections, 0 bytes up, 0 down, ") ||
		!strings.Contains(lines[1], "denied.example.org denied") || !strings.Contains(lines[1], "to allow it: - host: denied.example.org") {
		t.Errorf("%+v", got)
	}
	if got := corral(t, "network", "log", "--state", d.State); strings.Count(got.stdout, " uid=0 ") != 2 {
		t.Errorf("%+v", got)
	}
}
