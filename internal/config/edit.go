package config

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"corral/internal/directory"
	"corral/internal/nearest"
)

// An Edit adds one entry to a file, or removes one. Exactly one of its fields is set.
type Edit struct {
	AddRepo      *Repo
	RemoveRepo   string // an id
	AddPrincipal *Principal
}

// emptyFile is what a file is made from that is not there.
const emptyFile = "version: 1\n"

// Apply returns content with the edit made, which has been read back. Every other line is as it was, but where the list
// is written in brackets: then the file is written anew, with its comments. nil content is no file. name is the file's in
// errors, of which o says what it is.
func (e Edit) Apply(name string, content []byte, o LoadOptions) ([]byte, error) {
	if content == nil {
		content = []byte(emptyFile)
	}
	before, err := Parse(name, content, o)
	if err != nil {
		return nil, err
	}
	want, err := e.change(before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var wrong Errors
	for _, write := range []func([]byte) ([]byte, error){e.lines, e.anew} {
		edited, err := write(content)
		if err != nil {
			continue
		}
		after, err := Parse(name, edited, o)
		if err == nil && reflect.DeepEqual(after, want) {
			return edited, nil
		}
		wrong = nil
		_ = errors.As(err, &wrong)
	}
	// What is wrong with a file that was right is the entry's: an id that cannot be, a profile that is not there.
	if len(wrong) == 1 && e.RemoveRepo == "" {
		return nil, fmt.Errorf("%s: %s", name, wrong[0].Message)
	}
	return nil, fmt.Errorf("%s is written in a way that this program cannot change\nhint: change it in an editor: corral config --help", name)
}

// change makes the edit in c.
func (e Edit) change(c Config) (Config, error) {
	switch {
	case e.AddRepo != nil:
		for _, r := range c.Repos {
			if r.Path == e.AddRepo.Path {
				return c, fmt.Errorf("repository %s is there already, as %q", shown(r.Path), shorten(r.ID))
			}
			if directory.Overlap(r.Path, e.AddRepo.Path) {
				return c, fmt.Errorf("%s overlaps the repository %q, %s: jobs in one could replace the other, so neither would be served\nhint: corral repo remove takes that one out",
					shown(e.AddRepo.Path), shorten(r.ID), shown(r.Path))
			}
			if r.ID == e.AddRepo.ID {
				return c, fmt.Errorf("there is a repository %q already: %s\nhint: --id gives it another", shorten(r.ID), shown(r.Path))
			}
		}
		c.Repos = append(slices.Clone(c.Repos), *e.AddRepo)
	case e.AddPrincipal != nil:
		for _, r := range c.Principals {
			if r.Name == e.AddPrincipal.Name {
				return c, fmt.Errorf("there is a principal %q already\nhint: remove its entry, or take another name", r.Name)
			}
		}
		c.Principals = append(slices.Clone(c.Principals), *e.AddPrincipal)
	default:
		at := slices.IndexFunc(c.Repos, func(r Repo) bool { return r.ID == e.RemoveRepo })
		if at < 0 {
			return c, c.noRepo(e.RemoveRepo)
		}
		c.Repos = slices.Delete(slices.Clone(c.Repos), at, at+1)
		if len(c.Repos) == 0 {
			c.Repos = nil
		}
	}
	return c, nil
}

func (c *Config) noRepo(id string) error {
	var known []string
	for _, r := range c.Repos {
		known = append(known, r.ID)
	}
	err := fmt.Errorf("there is no repository %q", shorten(id))
	if near := nearest.Of(id, known); near != "" {
		err = fmt.Errorf("%w\nhint: did you mean %q?", err, near)
	}
	return err
}

// section is the key of the list that is changed.
func (e Edit) section() string {
	if e.AddPrincipal != nil {
		return "principals"
	}
	return "repos"
}

// Entry is what the edit adds, as lines of the file.
func (e Edit) Entry() string {
	w := &writer{}
	switch {
	case e.AddRepo != nil:
		w.item(func() { w.repo(*e.AddRepo) })
	case e.AddPrincipal != nil:
		w.item(func() { w.principal(*e.AddPrincipal) })
	}
	return w.b.String()
}

// anew writes the file from its tree.
func (e Edit) anew(content []byte) ([]byte, error) {
	var document, entry yaml.Node
	if err := errors.Join(yaml.Unmarshal(content, &document), yaml.Unmarshal([]byte(e.Entry()), &entry)); err != nil {
		return nil, err
	}
	root := document.Content[0]
	list := valueOf(root, e.section())
	switch {
	case list == nil:
		list = &yaml.Node{Kind: yaml.SequenceNode}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: e.section()}, list)
	case e.RemoveRepo != "":
		return e.removeAnew(&document, root, list)
	}
	*list = yaml.Node{Kind: yaml.SequenceNode, Content: append(list.Content, entry.Content[0].Content...), HeadComment: list.HeadComment}
	return encode(&document)
}

func (e Edit) removeAnew(document, root, list *yaml.Node) ([]byte, error) {
	at := e.index(list)
	if at < 0 {
		return nil, errors.New("no such entry")
	}
	list.Content = slices.Delete(list.Content, at, at+1)
	if len(list.Content) == 0 {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i+1] == list {
				root.Content = slices.Delete(root.Content, i, i+2)
				break
			}
		}
	}
	return encode(document)
}

func encode(document *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// index is where in the list the repository is that is to be removed, -1 if it is not there.
func (e Edit) index(list *yaml.Node) int {
	return slices.IndexFunc(list.Content, func(n *yaml.Node) bool {
		if id := valueOf(n, "id"); id != nil {
			return id.Value == e.RemoveRepo
		}
		path := valueOf(n, "path")
		return path != nil && filepath.Base(path.Value) == e.RemoveRepo
	})
}
