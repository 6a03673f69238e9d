// Package edit changes files of a repository: it replaces a text that occurs exactly once in a file, applies a unified diff of one or
// several files, or creates a file. A front-end makes a Request; Run, in the program corral-layer, carries it out as a job in the
// jail of the repository, as the job's user.
//
// A file is replaced as a whole. The new content is written beside it, synced and exchanged with the old one, which must
// then be what was read: a program that wrote the file meanwhile loses nothing, and nobody ever sees half of a file.
// Edits of files in the same directory wait for each other, also those of other jails, by a lock on the directory; a program that
// holds that lock only delays them.
package edit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of an edit, in bytes.
const (
	MaxFile = 16 << 20 // of a file, before and after the edit
	MaxText = 1 << 20  // of each text of a Request
)

// Name is the first argument of corral-layer for an edit. All that a client chooses comes from standard input.
const Name = "edit"

// A Request is an edit. Either Patch is set, or Old and New are. An Old of "" creates the file.
type Request struct {
	Path            string // relative to the repository, or absolute and in it
	Old, New, Patch *string
	All             bool // each occurrence of Old is replaced, not the only one
}

// redaction begins each mark that output has in place of a secret.
const redaction = "[REDACTED:"

// Check returns why the request cannot be carried out on any file, or nil. An empty path is valid with a patch that names
// its file.
func (r *Request) Check() error {
	texts := []struct {
		name string
		text *string
	}{{"old", r.Old}, {"new", r.New}, {"patch", r.Patch}}
	switch {
	case r.Patch != nil && (r.Old != nil || r.New != nil):
		return errors.New("patch cannot be combined with old and new: give one of the two forms")
	case r.All && (r.Patch != nil || r.Old != nil && *r.Old == ""):
		return errors.New("replaceAll requires old, the text to replace")
	case r.Patch == nil && r.Old == nil:
		return errors.New(`old or patch is required: old is the text to replace ("" creates the file), patch is a unified diff`)
	case r.Patch == nil && r.New == nil:
		return errors.New(`new is required with old: it is the text that replaces it ("" deletes it)`)
	case r.Path == "" && r.Patch == nil:
		return errors.New("path is required")
	}
	for _, t := range texts {
		switch {
		case t.text == nil:
		case len(*t.text) > MaxText:
			return fmt.Errorf("%s: has %d bytes, the maximum is %d", t.name, len(*t.text), MaxText)
		case strings.IndexByte(*t.text, 0) >= 0:
			return fmt.Errorf("%s: contains a NUL byte, and only text can be edited", t.name)
		case strings.Contains(*t.text, redaction):
			return fmt.Errorf("%s: contains %q, which stands for a secret in output and is not what the file contains: "+
				"edit lines without secrets, or change this one with a command", t.name, redaction)
		}
	}
	return nil
}

// Encode returns the request as Run reads it. Run refuses a request with a text of more than MaxText bytes.
func (r *Request) Encode() string { return encode(r) }

func encode(request any) string {
	b, _ := json.Marshal(request) // of texts, numbers and lists of them
	return string(b)
}

// maxRequest is the maximum size of an encoded request in bytes: each text of a Request can take six times its size, and FileRequest.Data a
// third more.
const maxRequest = 32 << 20

// decode reads what encode returned, and nothing else.
func decode(from io.Reader, request any) error {
	b, err := io.ReadAll(io.LimitReader(from, maxRequest+1))
	if err == nil && len(b) > maxRequest {
		err = fmt.Errorf("it has more than %d bytes", maxRequest)
	}
	if err == nil {
		err = json.Unmarshal(b, request)
	}
	if err != nil {
		return fmt.Errorf("the request on standard input is not valid: %w", err)
	}
	return nil
}

// Run carries out the request in stdin on the repository that is the working directory, and writes what it changed to
// stdout. If it returns an error, files that stdout does not name are as they were.
func Run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		return errors.New("edit takes no arguments: the request is read from standard input")
	}
	r := new(Request)
	if err := cmp.Or(decode(stdin, r), r.Check()); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	report, err := r.do(root)
	_, written := io.WriteString(stdout, report)
	return cmp.Or(err, written)
}

// do carries out the request in the repository at root, and reports what it changed. A patch of several files changes those that it
// fits, and the error is about the others.
func (r *Request) do(root string) (report string, err error) {
	if r.Patch == nil {
		return r.one(root, nil)
	}
	list, err := parsePatch(*r.Patch)
	switch {
	case err != nil:
		return "", err
	case len(list) == 1:
		r.Path = cmp.Or(r.Path, list[0].path)
		return r.one(root, list[0])
	case r.Path != "":
		return "", fmt.Errorf("the patch is for %d files, and path is %q: leave out path, or give the patch of one file", len(list), r.Path)
	}
	var failed []error
	for _, p := range list {
		of := &Request{Path: p.path}
		said, err := of.one(root, p)
		report += said
		if err != nil {
			failed = append(failed, fmt.Errorf("%s was not changed: %w", cmp.Or(p.path, "a file without a name"), err))
		}
	}
	return report, errors.Join(failed...)
}

// one carries out the request on one file. p is its patch, nil if the request has none.
func (r *Request) one(root string, p *patch) (report string, err error) {
	if r.Path == "" {
		return "", errors.New("path is required: the patch names no file")
	}
	creates := p == nil && *r.Old == "" || p != nil && p.creates
	at, err := find(root, r.Path, creates)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			at.made.remove()
		}
		at.close()
	}()
	if p != nil && !p.names(r.Path, at.shown()) {
		return "", fmt.Errorf("the patch is for %q, and path is %q: leave out path, or give the patch of that file", p.path, r.Path)
	}
	if err := at.lock(); err != nil {
		return "", err
	}
	return at.edit(func(f *file) ([]change, error) {
		switch {
		case f == nil && !creates:
			return nil, fmt.Errorf("%s does not exist: old \"\" creates it, with new as its content, or a patch from /dev/null", at.shown())
		case p != nil:
			return p.apply(f)
		case *r.Old == "":
			return create(f, *r.New)
		}
		return replace(f, *r.Old, *r.New, r.All)
	})
}

// create returns the change that gives a file its first content. f is nil if there is no file.
func create(f *file, content string) ([]change, error) {
	if f != nil && len(f.content) > 0 {
		return nil, fmt.Errorf("%s exists and has %d bytes: old is the text of it to replace, and \"\" only creates a file", f.shown, len(f.content))
	}
	return []change{{text: []byte(content)}}, nil
}
