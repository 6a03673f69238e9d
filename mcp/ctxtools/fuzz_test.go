package ctxtools

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/strictjson"
	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
	"corral/store/index"
)

// FuzzCtxArguments: any arguments get a reply that conforms to the schema, and the requests they cause are within the
// bounds of the arguments.
func FuzzCtxArguments(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"language":"go","code":"import \"os\"\nos.Exit(1)","timeout":"400","background":"true","intent":"x","cwd":"a"}`,
		`{"path":"a/../b","language":"php","code":"<?php declare(strict_types=1); echo 1;"}`,
		`{"path":"a","language":"python","code":"from __future__ import a\nx","timeout":1e3}`,
		`{"path":"a","language":"rust","code":"fn main() {}"}`,
		`{"id":"bg_1","action":"output","tail":"3","offset":null}`,
	} {
		f.Add(uint8(0), []byte(seed))
		f.Add(uint8(1), []byte(seed))
		f.Add(uint8(2), []byte(seed))
	}
	for _, seed := range []string{
		`{"commands":[{"label":"l","command":"c","x":1}],"queries":["q"]}`, `{"commands":[{"label":"\u0000","command":"\ud800"}]}`,
		`{"queries":["a"],"limit":3}`, `{"queries":"[\"a\",1]"}`, `{"query":"\u0000","source":"%"}`, `{"queries":"[","sort":"time"}`, `{"limit":1e99}`,
	} {
		f.Add(uint8(4), []byte(seed))
		f.Add(uint8(5), []byte(seed))
	}
	stage := mcptest.NewFakeRunner()
	stage.Stdout = "some output\n"
	k := &cannedIndex{found: map[string]*index.Found{"a": {Hits: []index.Hit{cannedHit("s", "t", "a\xff")}}}}
	x := New(Settings{Engine: &job.Engine{Policy: stage, Runner: stage, Auditor: stage}, Knowledge: k, Repos: []string{"app"}})
	f.Cleanup(x.Close)
	tools := []tool.Tool{&Execute{x}, &ExecuteFile{x}, &Job{x}, &Jobs{x}, &BatchExecute{x}, &Search{x}}
	f.Fuzz(func(t *testing.T, n uint8, arguments []byte) {
		if envelope, aside := (strictjson.Checker{Fold: true}).Check(arguments); envelope != nil || aside != nil || strictjson.Kind(arguments) != "an object" {
			return // rejected by the server
		}
		target := tools[int(n)%len(tools)]
		stage.Request, k.queries = nil, nil
		r, err := target.Call(mcptest.AsUser(t.Context()), json.RawMessage(arguments))
		var e *tool.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		if err == nil {
			raw, err := json.Marshal(r.Structured)
			if err != nil {
				t.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			if mcptest.CheckReply(t, target, v); r.Text == "" || !utf8.ValidString(r.Text) {
				t.Errorf("%s", raw)
			}
		}
		for _, q := range k.queries {
			if q.Limit < 1 || q.Limit > 50 || strings.TrimSpace(q.Text) == "" {
				t.Errorf("query %+v", q)
			}
		}
		if q := stage.Request; q != nil && (q.Code == nil || *q.Code == "" || q.Limits.Wall < 0 || q.Repo != "app" || q.Runtime == "") {
			t.Errorf("request %+v", q)
		}
	})
}
