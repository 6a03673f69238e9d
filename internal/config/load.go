package config

import (
	"fmt"
	"path/filepath"
	"slices"

	"corral/internal/config/strict"
	"corral/job"
)

// Default returns the configuration without any file.
func Default() Config {
	c := Config{Defaults: job.Defaults(), Runtime: Runtime{Runtimes: job.AllRuntimes()}}
	language(nil).SetDefaults(&c)
	return c
}

// ServesOwn returns whether each user is also served the directories that the user owns: as the configuration says, otherwise
// whether no repository is listed, in it or elsewhere.
func (c Config) ServesOwn(listed int) bool {
	if c.OwnDirectories != nil {
		return *c.OwnDirectories
	}
	return listed == 0
}

// A document is a configuration file.
type document struct {
	// Format of the file.
	Version int `yaml:"version" form:"version" without:"required"`
	Config
}

// String returns c as a file from which Load reads the same, with every value that applies.
func (c Config) String() string {
	c.Repos = slices.Clone(c.Repos)
	for i, r := range c.Repos {
		c.Repos[i] = r.written()
	}
	s := language(nil).Write(&document{1, c})
	if c.OwnDirectories == nil {
		s += fmt.Sprintf("# own_directories: %t, which follows from repos\n", c.ServesOwn(len(c.Repos)))
	}
	return s
}

// written returns r as a file has it: without an id that is the base name of the path.
func (r Repo) written() Repo {
	if r.ID == filepath.Base(r.Path) {
		r.ID = ""
	}
	return r
}

// A File is the content of a file.
type File struct {
	Name    string // the path of the file
	Content []byte
}

// Files is a configuration file with the entry files beside it. Later Files take precedence over earlier ones.
type Files struct {
	User       bool  // they are a user's
	Main       *File // nil if there is none
	Repos      []File
	Principals []File
}

// A loader makes a Config from files.
type loader struct {
	strict.Reader
	document

	roots             []strict.Node // of the configuration files
	repos, principals []entry       // where those of document are
	later             []func()      // checks for when all files are decoded
}

// An entry is where an element of a list is.
type entry struct {
	strict.Node
	own bool // it is a file of its own
}

// parse returns the configuration in files. lookup returns the id of a user's name.
func parse(files []Files, lookup func(name string) (uint32, error)) (Config, error) {
	l, err := load(files, lookup)
	if err != nil {
		return Config{}, err
	}
	return l.Config, nil
}

func load(files []Files, lookup func(name string) (uint32, error)) (*loader, error) {
	l := &loader{Reader: strict.Reader{Language: language(lookup)}, document: document{Config: Default()}}
	for _, one := range files {
		l.add(one)
	}
	for _, check := range l.later {
		check()
	}
	c := &l.Config
	ceilings := l.last("ceilings")
	settle(&c.Defaults, l.last("defaults"), &c.Ceilings, ceilings)
	settle(&c.Runtime.Defaults, l.last("runtime", "defaults"), &c.Ceilings, ceilings)
	settle(&c.Runtime.Defaults, l.last("runtime", "defaults"), &job.Limits{Wall: c.Runtime.MaxDuration}, in(strict.Node{}))
	return l, l.Err()
}

// last returns the place of each limit of a mapping in the last file that sets it.
func (l *loader) last(path ...string) place {
	return func(key string) strict.Node {
		for _, root := range slices.Backward(l.roots) {
			if n := root.At(path...).At(key); n.Present() {
				return n
			}
		}
		return strict.Node{}
	}
}

func (l *loader) add(one Files) {
	var root strict.Node
	if one.Main != nil {
		root = l.Parse(one.Main.Name, one.Main.Content, one.User)
		l.Decode(root, "", &l.document)
		if root.IsMapping() && !root.At("version").Present() {
			root.Failf("missing `version`: must be `version: 1`")
		}
		l.roots = append(l.roots, root)
		l.checkSections(root)
	}
	if list := root.At("repos"); list.Present() || len(one.Repos) > 0 {
		l.repos, l.Repos = joined(l, list, l.Repos, one.Repos, one.User)
		l.checkRepos()
	}
	if list := root.At("principals"); list.Present() || len(one.Principals) > 0 {
		l.principals, l.Principals = joined(l, list, l.Principals, one.Principals, one.User)
		l.checkPrincipals()
	}
}

// joined decodes files that are entries of a list, and appends them to its elements, which are decoded. It returns the places
// of all and all.
func joined[T any](l *loader, list strict.Node, decoded []T, files []File, user bool) ([]entry, []T) {
	var places []entry
	for _, item := range list.Items() {
		places = append(places, entry{item, false})
	}
	all := listed(decoded, list)
	for _, file := range files {
		root := l.Parse(file.Name, file.Content, user)
		var one T
		l.Decode(root, "", &one)
		places, all = append(places, entry{root, true}), append(all, one)
	}
	return places, all
}

// listed returns the elements of a list, none if a configuration file does not have it: then all are entry files'.
func listed[T any](decoded []T, list strict.Node) []T {
	if len(list.Items()) == 0 {
		return nil
	}
	return decoded
}
