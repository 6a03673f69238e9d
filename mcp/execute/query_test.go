package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
	"corral/store/artifact"
)

func TestQuery(t *testing.T) {
	s := mcptest.Store(t)
	var lines strings.Builder
	for n := range 100 {
		fmt.Fprintf(&lines, "line %d\n", n+1)
	}
	handle := mcptest.StoreOutput(t, s, lines.String(), "LINE 50 too")
	tool := &QueryOutput{Artifacts: s, Repos: []string{"app"}}
	for _, tt := range []struct{ name, arguments, want string }{
		{
			"both", `"queryTerms":["line 50"],"contextLines":1`,
			`{"excerpts":[{"lineStart":49,"lineEnd":51,"content":"line 49\nline 50\nline 51","source":"stdout"},
			{"lineStart":1,"lineEnd":1,"content":"LINE 50 too","source":"stderr"}],
			"totalLines":101,"totalBytes":803,"searchedStreams":["stdout","stderr"],"matchStatus":"matched"}`,
		},
		{
			"one stream", `"queryTerms":["5"],"stream":"stderr","contextLines":0,"maxExcerpts":1`,
			`{"excerpts":[{"lineStart":1,"lineEnd":1,"content":"LINE 50 too","source":"stderr"}],"totalLines":1,"totalBytes":11,
			"searchedStreams":["stderr"],"matchStatus":"matched"}`,
		},
		{
			"few", `"queryTerms":["0"],"contextLines":0,"maxExcerpts":1,"stream":"stdout"`,
			`{"excerpts":[{"lineStart":10,"lineEnd":10,"content":"line 10","source":"stdout"}],"totalLines":100,"totalBytes":792,
			"searchedStreams":["stdout"],"matchStatus":"matched"}`,
		},
		{
			"no match", `"queryTerms":["nowhere"],"maxExcerpts":2`,
			`{"excerpts":[{"lineStart":1,"lineEnd":2,"content":"line 1\nline 2","source":"stdout","fallback":true}],"totalLines":101,
			"totalBytes":803,"searchedStreams":["stdout","stderr"],"matchStatus":"noMatchFallback"}`,
		},
		{
			"lines", `"lineRange":{"stream":"stdout","startLine":99,"endLine":1000}`,
			`{"excerpts":[{"lineStart":99,"lineEnd":100,"content":"line 99\nline 100","source":"stdout"}],"totalLines":100,
			"totalBytes":792,"searchedStreams":["stdout"],"matchStatus":"lineRange"}`,
		},
		{
			"lines beyond the end", `"lineRange":{"startLine":500,"endLine":501}`,
			`{"excerpts":[],"totalLines":100,"totalBytes":792,"searchedStreams":["stdout"],"matchStatus":"lineRange"}`,
		},
		{
			"lines of the stream", `"stream":"stderr","lineRange":{"startLine":1,"endLine":1}`,
			`{"excerpts":[{"lineStart":1,"lineEnd":1,"content":"LINE 50 too","source":"stderr"}],"totalLines":1,"totalBytes":11,
			"searchedStreams":["stderr"],"matchStatus":"lineRange"}`,
		},
		{
			"terms in lines", `"queryTerms":["5"],"maxExcerpts":1,"contextLines":2,"stream":"both","lineRange":{"stream":"stdout","startLine":24,"endLine":26}`,
			`{"excerpts":[{"lineStart":24,"lineEnd":26,"content":"line 24\nline 25\nline 26","source":"stdout"},
			{"lineStart":24,"lineEnd":26,"content":"line 24\nline 25\nline 26","source":"stdout"}],
			"totalLines":100,"totalBytes":792,"searchedStreams":["stdout"],"matchStatus":"lineRange"}`,
		},
		{
			"no term in lines", `"queryTerms":["50"],"stream":"stdout","lineRange":{"startLine":1,"endLine":2}`,
			`{"excerpts":[{"lineStart":1,"lineEnd":2,"content":"line 1\nline 2","source":"stdout"}],
			"totalLines":100,"totalBytes":792,"searchedStreams":["stdout"],"matchStatus":"lineRange"}`,
		},
		{
			"literal", `"queryTerms":["l.*e"],"match":"literal","maxExcerpts":1`,
			`{"excerpts":[{"lineStart":1,"lineEnd":1,"content":"line 1","source":"stdout","fallback":true}],"totalLines":101,
			"totalBytes":803,"searchedStreams":["stdout","stderr"],"matchStatus":"noMatchFallback"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, `{"artifactHandle":"`+handle+`",`+tt.arguments+`}`)
			var want map[string]any
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			want["artifactHandle"] = handle
			if !reflect.DeepEqual(got, want) || r.IsError {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// TestQueryErrors: invalid queries get an error, never an empty result.
func TestQueryErrors(t *testing.T) {
	s := mcptest.Store(t)
	handle := mcptest.StoreOutput(t, s, "secret\n", "")
	other := handle[:len(handle)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(handle, "0")]
	for _, tt := range []struct{ name, arguments, code, argument, want string }{
		{"no handle", `"queryTerms":["x"]`, tool.CodeInvalid, "artifactHandle", "required"},
		{"a path", `"artifactHandle":"../../etc","queryTerms":["x"]`, tool.CodeInvalid, "artifactHandle", "does not match"},
		{"nothing asked", `"artifactHandle":"` + handle + `"`, tool.CodeInvalid, "queryTerms", "queryTerms or lineRange is required"},
		{"no terms", `"artifactHandle":"` + handle + `","queryTerms":[]`, tool.CodeInvalid, "queryTerms", "queryTerms or lineRange is required"},
		{"two streams", `"artifactHandle":"` + handle + `","stream":"stderr","lineRange":{"stream":"stdout","startLine":1,"endLine":1}`, tool.CodeInvalid, "stream", `contradicts lineRange.stream "stdout"`},
		{"two streams and terms", `"artifactHandle":"` + handle + `","queryTerms":["x"],"stream":"stdout","lineRange":{"stream":"stderr","startLine":1,"endLine":1}`, tool.CodeInvalid, "stream", `contradicts lineRange.stream "stderr"`},
		{"excerpts of lines", `"artifactHandle":"` + handle + `","maxExcerpts":11,"lineRange":{"startLine":1,"endLine":1}`, tool.CodeInvalid, "maxExcerpts", "without queryTerms"},
		{"context of lines", `"artifactHandle":"` + handle + `","queryTerms":[],"contextLines":0,"lineRange":{"startLine":1,"endLine":1}`, tool.CodeInvalid, "contextLines", "without queryTerms"},
		{"backwards", `"artifactHandle":"` + handle + `","lineRange":{"startLine":3,"endLine":2}`, tool.CodeInvalid, "lineRange.endLine", "before startLine"},
		{"fuzzy", `"artifactHandle":"` + handle + `","queryTerms":["x"],"match":"fuzzy"`, tool.CodeUnsupported, "match", "full-text index"},
		{"not there", `"artifactHandle":"` + other + `","queryTerms":["x"]`, tool.CodeNotFound, "", "not found"},
		{"malformed handle", `"artifactHandle":"x","queryTerms":["x"]`, tool.CodeNotFound, "", "not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &QueryOutput{Artifacts: s, Repos: []string{"app"}}, `{`+tt.arguments+`}`)
			details, _ := v["details"].(map[string]any)
			argument, _ := details["argument"].(string)
			message, _ := v["message"].(string)
			if v["code"] != tt.code || argument != tt.argument || !strings.Contains(message, tt.want) || !r.IsError {
				t.Errorf("%v", v)
			}
		})
	}
}

// TestOtherArtifactsAreNotFound: a caller cannot tell another's artifact from one that does not exist.
func TestOtherArtifactsAreNotFound(t *testing.T) {
	s := mcptest.Store(t)
	handle := mcptest.StoreOutput(t, s, "secret\n", "")
	arguments := `{"artifactHandle":"` + handle + `","queryTerms":["secret"]}`
	as := func(principal string, repos []string) context.Context {
		return tool.WithCaller(t.Context(), tool.Caller{Principal: principal, Session: "s", Repos: repos, Progress: func(float64, string) {}})
	}
	unknown, _ := mcptest.CallTool(t, as("user:eve", nil), &QueryOutput{Artifacts: s, Repos: []string{"app"}}, strings.Replace(arguments, "runtime-app", "runtime-xyz", 1))
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		served []string
		code   any
	}{
		{"owner", as("user:ada", nil), []string{"app"}, nil},
		{"owner, restricted to it", as("user:ada", []string{"app"}), []string{"app", "other"}, nil},
		{"another principal", as("user:eve", nil), []string{"app"}, tool.CodeNotFound},
		{"another repository's", as("user:ada", []string{"other"}), []string{"app", "other"}, tool.CodeNotFound},
		{"not served", as("user:ada", nil), []string{"other"}, tool.CodeNotFound},
		{"none served", as("user:ada", nil), nil, tool.CodeNotFound},
		{"may use an unserved repository", as("user:ada", []string{"app"}), []string{"other"}, tool.CodeNotFound},
		{"nobody", t.Context(), []string{"app"}, tool.CodeNotFound},
	} {
		v, _ := mcptest.CallTool(t, tt.ctx, &QueryOutput{Artifacts: s, Repos: tt.served}, arguments)
		if v["code"] != tt.code {
			t.Errorf("%s: %v", tt.name, v)
		}
		message, _ := v["message"].(string)
		if tt.code != nil && strings.ReplaceAll(message, "app", "xyz") != unknown["message"] {
			t.Errorf("%s: %q differs from %q", tt.name, message, unknown["message"])
		}
	}
}

// TestExpiredAndCorruptArtifacts: expired and corrupt artifacts have error codes of their own.
func TestExpiredAndCorruptArtifacts(t *testing.T) {
	top := t.TempDir()
	dir, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var passed atomic.Int64 // since the test began; the store's sweep reads the time, too
	s, err := artifact.Open(dir, artifact.Options{TTL: time.Hour, Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	target := &QueryOutput{Artifacts: s, Repos: []string{"app"}}
	damaged, expired := mcptest.StoreOutput(t, s, "one\n", ""), mcptest.StoreOutput(t, s, "two\n", "")
	files, err := filepath.Glob(filepath.Join(top, "*", damaged, "stdout.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if err := errors.Join(os.Chmod(files[0], 0o600), os.WriteFile(files[0], []byte("no gzip"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ask := func(handle string) any {
		v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), target, `{"artifactHandle":"`+handle+`","queryTerms":["one"]}`)
		return v["code"]
	}
	if code := ask(damaged); code != tool.CodeCorrupt {
		t.Errorf("damaged: %v", code)
	}
	passed.Store(int64(2 * time.Hour))
	if code := ask(expired); code != tool.CodeExpired {
		t.Errorf("expired: %v", code)
	}
}

// blockingArtifacts is an Artifacts whose methods block until the context ends.
type blockingArtifacts struct{}

func (blockingArtifacts) Query(ctx context.Context, _ artifact.Query) (*artifact.Answer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (blockingArtifacts) Find(ctx context.Context, _ artifact.Reader, _ string) (*artifact.Manifest, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestQueryEndsWithCall: a query ends with its call.
func TestQueryEndsWithCall(t *testing.T) {
	ctx, stop := context.WithCancel(mcptest.AsUser(t.Context()))
	ended := make(chan error)
	go func() {
		tool := &QueryOutput{Artifacts: blockingArtifacts{}, Repos: []string{"app"}}
		_, err := tool.Call(ctx, json.RawMessage(`{"artifactHandle":"x","queryTerms":["x"]}`))
		ended <- err
	}()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
