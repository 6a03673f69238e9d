package client

import (
	"cmp"
	"context"
	"strings"

	"corral/internal/redact"
	"corral/job"
)

// claim returns what the request for spec claims: spec.Claim and, if the supervisor records it, the program and its code without
// secrets. The supervisor does not read what a job runs, so that no client's text is parsed by root.
func (c *Client) claim(ctx context.Context, spec job.Spec) (job.Claim, error) {
	record, err := c.recording(ctx)
	if err != nil {
		return job.Claim{}, err
	}
	claim := spec.Claim
	claim.Network = cmp.Or(spec.Network, claim.Network) // of a job, with what the policy made of the request
	if record >= job.RecordArgv {
		claim.Argv = redact.Text(commandLine(spec.Args, spec.Secrets), nil)
	}
	if record >= job.RecordCode {
		claim.Source = redact.Text(source(spec.Files), spec.Secrets)
	}
	return claim, nil
}

// recording returns what the supervisor records. It asks once per connection.
func (c *Client) recording(ctx context.Context) (job.Recording, error) {
	c.mu.Lock()
	known := c.record
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	w, err := c.hello(ctx)
	return w.Record, err
}

// commandLine returns a command as a POSIX shell would take it. Secrets are hidden in each argument, because quoting changes their text.
func commandLine(args, secrets []string) string {
	words := make([]string, len(args))
	for n, arg := range args {
		arg = redact.Text(arg, secrets)
		if words[n] = arg; arg == "" || strings.ContainsFunc(arg, special) {
			words[n] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// special reports whether a shell may not take a character as it is.
func special(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_./:=@%+,", r):
		return false
	}
	return true
}

// source returns the contents of a job's files, each below its name if there are several.
func source(files []job.File) string {
	if len(files) == 1 {
		return files[0].Content
	}
	var b strings.Builder
	for _, f := range files {
		b.WriteString("==> " + f.Path + " <==\n" + f.Content + "\n")
	}
	return b.String()
}
