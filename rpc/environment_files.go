package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"strings"
	"time"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
	"corral/workspace/edit"
)

// filePrefix is that of the methods on files, which are named like the operations of package edit.
const filePrefix = "fs/"

// fileTime is the timeout of one operation on files.
const fileTime = 30 * time.Second

// maxResult is the maximum number of bytes that an operation returns, before they are encoded.
const maxResult = edit.MaxFile + 64<<10

var fileFamily = &family{name: "fs", unspawned: "the operation was not carried out"}

// A fileMethod is one of fs/*.
type fileMethod struct {
	changes bool // it changes something, and is bound to what the client's sandbox allows to change
	read    func(r *reader, f *edit.FileRequest)
}

var fileMethods = map[string]fileMethod{
	edit.OpStat: {}, edit.OpRead: {}, edit.OpReal: {}, edit.OpList: {},
	edit.OpWalk: {read: func(r *reader, f *edit.FileRequest) {
		in := r.object("options", r.optional("options"))
		bound := func(name string) int {
			n, _ := in.count(name)
			return int(min(n, 1<<30))
		}
		f.Walk = edit.WalkBounds{
			Depth: bound("maxDepth"), Directories: bound("maxDirectories"), Entries: bound("maxEntries"),
			Follow: in.boolean("followDirectorySymlinks"), Prune: in.boolean("pruneHiddenDirectories"),
		}
		r.inherit(in)
	}},
	edit.OpWrite: {changes: true, read: func(r *reader, f *edit.FileRequest) {
		data, err := base64.StdEncoding.DecodeString(r.text("dataBase64", r.required("dataBase64")))
		if err != nil {
			r.fail(bad("invalid dataBase64: %v", err))
		}
		f.Data = data
	}},
	edit.OpMkdir: {changes: true, read: func(r *reader, f *edit.FileRequest) { f.Recursive = r.boolean("recursive") }},
	edit.OpRemove: {changes: true, read: func(r *reader, f *edit.FileRequest) {
		f.Recursive, f.Force = r.boolean("recursive"), r.boolean("force")
	}},
	edit.OpCopy: {changes: true, read: func(r *reader, f *edit.FileRequest) {
		f.To, f.Recursive = r.path("destinationPath", r.required("destinationPath")), r.boolean("recursive")
	}},
}

// serveFile serves fs/*: the operation is a job in the session of the repository, with the rights and the view of its commands.
func (c *client) serveFile(m *message) *jsonrpc.Error {
	f := edit.FileRequest{Op: strings.TrimPrefix(m.method, filePrefix)}
	method := fileMethods[f.Op]
	r := read(m.params)
	name := "path"
	if f.Op == edit.OpCopy {
		name = "sourcePath"
	}
	f.Path = r.path(name, r.required(name))
	if method.read != nil {
		method.read(r, &f)
	}
	n := r.readSandbox()
	if r.fault != nil {
		return r.bad()
	}
	l := newLaunch(c.s, fileFamily)
	l.cap, l.file = maxResult, f.Op
	target := f.Path
	if f.Op == edit.OpCopy {
		target = f.To
	}
	c.discover(l, false, path.Clean(target))
	l.dir = c.placeOf(l, path.Clean(target))
	if fault := c.fill(l); fault != nil {
		return fault
	}
	repo := c.repoOf(l, l.dir)
	v := n.of(repo.Path)
	q := &l.request
	q.Tool, q.Dir, q.Builtin, q.Command, q.Usual.Wall = m.method, "", job.ToolFiles, []string{edit.FilesName}, fileTime
	l.id = f.Path
	if repo.ID != "" {
		if v.refusal != "" {
			return c.refuseFile(l, jsonrpc.Errorf(jsonrpc.CodeInternal, "the client's sandbox cannot be applied: %s", v.refusal))
		}
		if v.readOnly {
			v.keep = append(v.keep, "")
		}
		f.ReadOnly, f.Open, f.Hidden = v.keep, v.open, v.hidden
		for _, r := range v.patterns {
			if method.changes || r.access == "deny" {
				f.Patterns = append(f.Patterns, r.expression())
			}
		}
		c.confine(l, repo, "")
		q.ReadOnly = !method.changes
		q.Client = claims("path", f.Path, "to", f.To, "asked", n.String())
	}
	q.Stdin = f.Encode()
	return c.launch(l, m)
}

// placeOf returns a directory of the repository in whose jail a path is looked up: its own or, for a path in none, the one used last.
func (c *client) placeOf(l *launch, name string) string {
	if c.repoOf(l, name).ID != "" {
		return name
	}
	c.mu.Lock()
	last := c.environment.repo
	c.mu.Unlock()
	for _, dir := range []string{last, c.s.Dir} {
		if dir != "" && c.repoOf(l, dir).ID != "" {
			return dir
		}
	}
	for _, repo := range l.access.Repos {
		if c.who.mayUse(repo.ID) {
			return repo.Path
		}
	}
	return name
}

// refuseFile records that a change of a file was refused: the client's model sees no reason otherwise.
func (c *client) refuseFile(l *launch, f *jsonrpc.Error) *jsonrpc.Error {
	if fileMethods[l.file].changes && f.Code != codeMissing {
		c.note("%s of %s was refused: %s", l.request.Tool, l.id, f.Message)
		c.s.warn(c.ctx, "a change of a file was refused", "principal", c.who.Principal, "repo", l.request.Repo, "method", l.request.Tool,
			"path", text.Line(l.id, maxSaid), "reason", f.Message)
	}
	return f
}

// finishFile answers fs/*.
func (p *process) finishFile(e *outcome) {
	c := p.c
	f := p.fileFault(e)
	for _, line := range p.sensitive(e) {
		c.note("%s", line)
	}
	c.mu.Lock()
	delete(c.processes, p.key)
	c.forgetPending(p.to, p.requestID)
	c.mu.Unlock()
	c.s.processes.Add(-1)
	last := jsonrpc.Item{Size: p.out.size(), Sent: p.out.release}
	data := p.out.stream(0).kept
	switch {
	case f != nil:
		last.Text = dialect.Error(p.requestID, c.refuseFile(&p.launch, f))
	case p.file == edit.OpRead:
		last.Build = func() iter.Seq[[]byte] { return encoded(p.requestID, data) }
	default:
		result := bytes.NewBufferString("{}")
		if len(data) > 0 {
			result.Reset()
			// A job could have changed what it says: only JSON goes into the answer, and in one line.
			if err := json.Compact(result, data); err != nil {
				last.Text = dialect.Error(p.requestID, jsonrpc.Errorf(jsonrpc.CodeInternal, "the result is not JSON: %v", err))
				break
			}
		}
		last.Text = dialect.Result(p.requestID, result.Bytes())
	}
	p.to.Put(last)
}

// fileFault returns why an operation was not carried out, nil if it was.
func (p *process) fileFault(e *outcome) *jsonrpc.Error {
	said := strings.TrimSpace(strings.TrimPrefix(string(p.out.stream(1).kept), "corral-layer: "))
	code := jsonrpc.CodeInternal
	switch {
	case e.fault != nil:
		return environmentFault(e)
	case e.record.Status == job.Success && e.exit == 0 && !p.out.stream(0).cut:
		return nil
	case e.record.Status == job.Success && e.exit == 0:
		said = "the result is too large: use a command"
	case e.exit == edit.ExitMissing:
		code = codeMissing
	case e.exit == edit.ExitState:
		code = jsonrpc.CodeRequest
	case e.exit != 1 || said == "":
		said = fmt.Sprintf("the operation ended with %s %s; a file that it was to write may be there in part", e.record.Status, e.record.Result.Limit)
	}
	return jsonrpc.Errorf(code, "%s", text.Line(said, maxSaid))
}

// encoded returns the result of fs/readFile, in pieces.
func encoded(id json.RawMessage, data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		const piece = 48 << 10 // a multiple of three
		frame := string(dialect.Result(id, strictjson.Encode(map[string]string{"dataBase64": ""})))
		cut := strings.LastIndex(frame, `""`) + 1
		if !yield([]byte(frame[:cut])) {
			return
		}
		for len(data) > 0 {
			n := min(piece, len(data))
			if !yield(base64.StdEncoding.AppendEncode(nil, data[:n])) {
				return
			}
			data = data[n:]
		}
		yield([]byte(frame[cut:]))
	}
}
