package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/front/server"
	"corral/internal/config"
	"corral/internal/strictjson"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/mcp/agent"
	"corral/mcp/execute"
	"corral/mcp/tool"
)

// policyHelp is the help text of the command.
const policyHelp = `corral policy explains the decision on a request. It runs nothing.

Usage:
  corral policy test REQUEST.json [--config FILE] [--repo DIR] [--json]
                  decide on a request
  corral policy test --connect HOST:PORT [--config FILE] [--repo ID]
                  decide on a connection of jobs to a host, as corral network test does

REQUEST.json has the arguments of the tool runtime_execute, and a principal unless it is you:

  {"repoId": "app", "runtime": "python", "code": "print(1)", "principal": "token:ci"}

  ("-" reads standard input. For a principal that may not use runtime_execute, it is a request of run, ctx_execute,
  ctx_execute_file or ctx_batch_execute, the first that the principal may use)

  --config FILE   read this configuration, too; it overrides the operator's and yours
  --repo DIR      serve this directory, too, with its base name as id; with --connect, the id of a repository
  --connect HOST:PORT
                  say whether jobs may reach this host, and by which rule; without :PORT, at any port
  --json          print one JSON object

Exit code: 0 allowed; 1 denied; 125 the request, the host or the configuration is invalid.
`

// A policyTest is the command line of corral policy test.
type policyTest struct {
	request, file, repo, connect string
	json                         bool
}

// policyCommand is `corral policy`, which explains the decision on a request.
func policyCommand(args []string) error {
	var o policyTest
	f := flag.NewFlagSet("policy", flag.ContinueOnError)
	f.StringVar(&o.file, "config", "", "")
	f.StringVar(&o.repo, "repo", "", "")
	f.StringVar(&o.connect, "connect", "", "")
	f.BoolVar(&o.json, "json", false, "")
	words, err := cli.ParseMixed(f, args, policyHelp)
	if err != nil {
		return err
	}
	switch {
	case len(words) == 1 && words[0] == "test" && o.connect != "" && !o.json:
		return (&networkOptions{repo: o.repo, file: o.file}).test(o.connect)
	case len(words) == 2 && words[0] == "test" && o.connect == "":
		o.request = words[1]
		return o.run()
	}
	return cli.Misused("policy", policyHelp, words)
}

func (o *policyTest) run() error {
	input, err := openRequest(o.request)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	c, _, err := server.LoadConfig(server.ConfigSources(o.file)) // drops root
	if err != nil {
		return err
	}
	if o.repo != "" {
		if c, err = server.AddRepository(c, o.repo); err != nil {
			return err
		}
	}
	p, err := server.NewPolicy(c, server.PrincipalsOf(c.Principals))
	if err != nil {
		return err
	}
	r, err := readRequest(input, c)
	if err != nil {
		return err
	}
	e := p.Explain(context.Background(), r)
	if o.json {
		err = writeExplanationJSON(os.Stdout, e)
	} else {
		err = writeExplanation(os.Stdout, e)
	}
	switch {
	case err != nil:
		return err
	case !e.Decision.Allowed():
		return cli.Exit(1, nil)
	}
	return nil
}

func openRequest(name string) (input *os.File, err error) {
	if name == "-" {
		return os.Stdin, nil
	}
	// Opened before root is dropped: root without sudo may name a file that only root can read.
	input, err = os.OpenFile(name, os.O_RDONLY|unix.O_NOCTTY, 0)
	return input, embed.Hint(err)
}

// maxRequest bounds the arguments of a call, in bytes of JSON.
const maxRequest = 10 << 20

// readRequest parses a request as the tool does.
func readRequest(input io.Reader, c config.Config) (*job.Request, error) {
	text, err := io.ReadAll(io.LimitReader(input, maxRequest+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxRequest {
		return nil, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	principal, arguments, err := splitPrincipal(text)
	if err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	caller, err := callerOf(principal, c)
	if err != nil {
		return nil, err
	}
	var caught requestCatcher
	target := &execute.Execute{Engine: &caught, Repos: server.RepoIDs(c.Repos), Timeouts: server.Timeouts(c), Paths: server.PathsByID(c)}
	if _, err = target.Call(tool.WithCaller(context.Background(), caller), arguments); caught.request == nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	caught.request.Tool = toolOf(caller)
	return caught.request, nil
}

// A requestCatcher is an engine that captures the request and runs nothing.
type requestCatcher struct{ request *job.Request }

var errCaught = errors.New("not run")

// Run implements run.Engine.
func (c *requestCatcher) Run(_ context.Context, r *job.Request, out job.Output, _ job.Hooks) (*job.Record, error) {
	out.Discard()
	c.request = r
	return nil, errCaught
}

// callerOf returns the caller with this principal: a user, or a token with the rights that the configuration gives it.
func callerOf(principal string, c config.Config) (tool.Caller, error) {
	caller := tool.Caller{Principal: principal, Session: "test", Trace: strings.Repeat("0", 32), Progress: func(float64, string) {}}
	name, isToken := strings.CutPrefix(principal, "token:")
	if !isToken {
		return caller, nil
	}
	i := slices.IndexFunc(c.Principals, func(p config.Principal) bool { return p.Name == name })
	if i < 0 {
		return caller, fmt.Errorf("the configuration has no principal %q", name)
	}
	caller.Repos, caller.Tools = c.Principals[i].Repos, agent.Expand(c.Principals[i].Tools)
	if toolOf(caller) == "" {
		return caller, fmt.Errorf("the principal %q may not use a tool that runs code: %s", name, strings.Join(runningTools, ", "))
	}
	return caller, nil
}

// runningTools are the tools that run code as runtime_execute does. Rules can tell them apart.
var runningTools = []string{"runtime_execute", "run", "ctx_execute", "ctx_execute_file", "ctx_batch_execute"}

// toolOf returns the first of runners that a caller may use, or "".
func toolOf(c tool.Caller) string {
	for _, name := range runningTools {
		if c.Tools == nil || slices.Contains(c.Tools, name) {
			return name
		}
	}
	return ""
}

// splitPrincipal takes the principal out of a JSON object. The tool checks the rest, except for duplicate keys.
func splitPrincipal(text []byte) (principal string, arguments json.RawMessage, err error) {
	if fault, _ := (strictjson.Checker{}).Check(text); fault != nil {
		return "", nil, fault
	}
	entries := strictjson.Entries(text)
	if entries == nil {
		return "", nil, errors.New("must be a JSON object")
	}
	var rest []string
	for _, e := range entries {
		if e.Key != "principal" {
			rest = append(rest, string(strictjson.Encode(e.Key))+":"+string(e.Value))
			continue
		}
		if err := json.Unmarshal(e.Value, &principal); err != nil || principal == "" {
			return "", nil, errors.New(`principal: must be a string such as "user:ada"`)
		}
	}
	return cmp.Or(principal, server.UserPrincipal()), json.RawMessage("{" + strings.Join(rest, ",") + "}"), nil
}
