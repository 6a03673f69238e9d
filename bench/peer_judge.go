package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// judgeRows measures a request to a go-judge that we start. It attaches each job to a cgroup, in a container that it reuses.
func judgeRows(o *options) ([]*Row, func(), error) {
	path := filepath.Join(o.peers, "go/go-judge")
	if _, err := os.Stat(path); err != nil {
		return nil, nil, errAbsent
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	address := l.Addr().String()
	l.Close()
	dir, group := filepath.Join(o.dir, "go-judge"), filepath.Base(o.dir)+"-go-judge"
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(path, "-http-addr", address, "-silent", "-release", "-enable-grpc=false", "-cgroup-prefix", group,
		"-parallelism", "64", "-pre-fork", "64")
	cmd.Dir = dir // with its configuration
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + dir}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	finish := func() {
		c.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if left := removeGroups(group); len(left) > 0 {
			fmt.Fprintln(os.Stderr, "bench: these cgroups of go-judge's are left:", strings.Join(left, " "))
		}
	}
	body, err := json.Marshal(map[string]any{"cmd": []map[string]any{{
		"args": []string{program}, "env": []string{"PATH=/usr/bin:/bin"},
		"files":    []map[string]any{{"content": ""}, {"name": "stdout", "max": 10240}, {"name": "stderr", "max": 10240}},
		"cpuLimit": 1e9, "memoryLimit": 256 << 20, "procLimit": 64,
	}}})
	run := func() error { return judge(c, "http://"+address+"/run", body) }
	for range 500 {
		if err = run(); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		finish()
		return nil, nil, err
	}
	return []*Row{{
		Name: "go-judge by HTTP", Sets: "cgroup; namespaces of a container, v1.12.2",
		Lacks: "one container for many runs; seccomp is off by default; no Landlock, no audit", Run: run,
	}}, finish, nil
}

// judge runs a program that must succeed.
func judge(c *http.Client, url string, body []byte) error {
	answer, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var ran []struct{ Status string }
	if err := json.Unmarshal(text, &ran); err != nil || len(ran) != 1 || ran[0].Status != "Accepted" {
		return fmt.Errorf("go-judge: %.200s", text)
	}
	return nil
}
