package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"corral/internal/config/strict"
	"corral/policy/network"
)

// A NetworkEdit adds entries to the network rules of a repository or of the file.
type NetworkEdit struct {
	Repo  string // an id; "" is the file, whose rules apply to repositories without rules of their own
	Allow []network.Rule
	Deny  []string
}

// A rulesPlace is where network rules are, or belong.
type rulesPlace struct {
	name    string      // "the file" or the repository
	file    File        // which has them
	own     bool        // it is an entry file
	mapping strict.Node // with the key `network`; absent if there is no file
	list    bool        // the mapping is an element of a list
	rules   *network.Rules
}

// change returns the change of the edit, and the configuration after it. Comments and the rest of the file stay.
func (e NetworkEdit) change(path string, l *loader, files Files) (change Change, after Config, err error) {
	if files.User {
		return change, after, fmt.Errorf("%s: network rules are for the supervisor, which reads no user's file\nhint: run with sudo", path)
	}
	at, want, err := e.place(path, l, files)
	if err != nil {
		return change, after, err
	}
	if e, err = e.missing(at); err != nil {
		return change, after, err
	}
	at.rules.Allow = append(slices.Clone(at.rules.Allow), e.Allow...)
	at.rules.Deny = append(slices.Clone(at.rules.Deny), e.Deny...)
	if err := e.check(at.rules); err != nil {
		return change, after, err
	}
	change = Change{Name: at.file.Name, Content: []byte(e.insert(at)), Replace: at.own}
	after, err = parse([]Files{at.replaced(files, change)}, lookupUser)
	if err == nil && reflect.DeepEqual(after, *want) {
		return change, after, nil
	}
	return Change{}, Config{}, fmt.Errorf("%s is written in a way that this program cannot change\nhint: in an editor, add to `network` of %s: %s",
		at.file.Name, at.name, strings.Join(e.lines(), "; "))
}

// replaced returns files with the change.
func (at rulesPlace) replaced(files Files, change Change) Files {
	file := File{change.Name, change.Content}
	if !at.own {
		files.Main = &file
		return files
	}
	files.Repos = slices.Clone(files.Repos)
	files.Repos[slices.IndexFunc(files.Repos, func(f File) bool { return f.Name == file.Name })] = file
	return files
}

// place returns where the rules are, and the configuration whose rules the caller completes.
func (e NetworkEdit) place(path string, l *loader, files Files) (at rulesPlace, want *Config, err error) {
	want = new(l.Config)
	if e.Repo == "" {
		at = rulesPlace{name: "the file", file: File{path, []byte(emptyFile)}, rules: &want.Network}
		if files.Main != nil {
			at.file, at.mapping = *files.Main, l.roots[0]
		}
		return at, want, nil
	}
	i := slices.IndexFunc(want.Repos, func(r Repo) bool { return r.ID == e.Repo })
	if i < 0 {
		return at, want, fmt.Errorf("%s: %w", path, want.unknownRepo(e.Repo))
	}
	want.Repos = slices.Clone(want.Repos)
	r := &want.Repos[i]
	rules := want.Network // which apply, and which its own will replace
	if r.Network != nil {
		rules = *r.Network
	}
	r.Network = &rules
	at = rulesPlace{name: fmt.Sprintf("repository %q", strict.Shorten(e.Repo)), own: l.repos[i].own, mapping: l.repos[i].Node, rules: &rules}
	if at.list = !at.own; at.list {
		at.file = *files.Main
		return at, want, nil
	}
	at.file = files.Repos[slices.IndexFunc(files.Repos, func(f File) bool { return f.Name == l.repos[i].File() })]
	return at, want, nil
}

// missing returns the edit without the entries that the rules have already. It is an error if they have all.
func (e NetworkEdit) missing(at rulesPlace) (NetworkEdit, error) {
	e.Allow = slices.DeleteFunc(slices.Clone(e.Allow), func(r network.Rule) bool {
		return slices.ContainsFunc(at.rules.Allow, func(o network.Rule) bool { return reflect.DeepEqual(r, o) })
	})
	e.Deny = slices.DeleteFunc(slices.Clone(e.Deny), func(host string) bool { return slices.Contains(at.rules.Deny, host) })
	if len(e.Allow)+len(e.Deny) == 0 {
		return e, fmt.Errorf("`network` of %s has these entries already", at.name)
	}
	return e, nil
}

// check returns why the rules cannot be as the edit makes them.
func (e NetworkEdit) check(rules *network.Rules) error {
	if _, err := network.Encode(rules); err != nil {
		return err
	}
	set, err := network.Compile(rules)
	if err != nil {
		return err
	}
	for _, r := range e.Allow {
		if _, err := set.Narrow(r.Preset + r.Host); err != nil {
			return fmt.Errorf("%w: remove that entry of `deny` in an editor", err)
		}
	}
	return nil
}

// lines returns the entries that the edit adds, for an error.
func (e NetworkEdit) lines() (all []string) {
	if len(e.Allow) > 0 {
		all = append(all, "to `allow` "+strings.Join(allowLines(e.Allow), ", "))
	}
	if len(e.Deny) > 0 {
		all = append(all, "to `deny` "+strings.Join(denyLines(e.Deny), ", "))
	}
	return all
}

func allowLines(rules []network.Rule) (lines []string) {
	for _, r := range rules {
		lines = append(lines, "- "+r.String())
	}
	return lines
}

func denyLines(hosts []string) (lines []string) {
	for _, host := range hosts {
		lines = append(lines, "- "+strict.Quote(host))
	}
	return lines
}

// An insertion is lines after the one with a number, at a column. Both are from 1.
type insertion struct {
	after, column int
	lines         []string
}

// insert returns the file with the entries of the edit, or with all rules where there is no key for them. It is right for files in
// block style, as people write them: the caller parses the result and compares.
func (e NetworkEdit) insert(at rulesPlace) string {
	lines := strings.SplitAfter(string(at.file.Content), "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	} else {
		lines[last] += "\n"
	}
	var all []insertion
	if set := at.mapping.At("network"); set.Present() {
		all = []insertion{extended(set, "deny", denyLines(e.Deny)), extended(set, "allow", allowLines(e.Allow))}
		slices.SortStableFunc(all, func(a, b insertion) int { return b.after - a.after }) // lines above stay where they are
	} else {
		all = []insertion{at.whole(len(lines))}
	}
	for _, one := range all {
		for i := range one.lines {
			one.lines[i] = strings.Repeat(" ", one.column-1) + one.lines[i] + "\n"
		}
		lines = slices.Insert(lines, min(one.after, len(lines)), one.lines...)
	}
	return strings.Join(lines, "")
}

// whole returns the key `network` with all rules, at the end of a file with this number of lines.
func (at rulesPlace) whole(lines int) insertion {
	key := struct {
		Network *network.Rules `yaml:"network"`
	}{at.rules}
	written := strings.Split(strings.TrimSuffix(language(nil).Write(&key), "\n"), "\n")
	if !at.list {
		return insertion{lines, 1, written}
	}
	_, last := at.mapping.Lines()
	return insertion{last, at.mapping.Column(), written}
}

// extended returns the entries of a list in the mapping set, with the key if the list is not there.
func extended(set strict.Node, key string, entries []string) insertion {
	if list := set.At(key); list.Present() {
		_, last := list.Lines()
		return insertion{last, list.Column(), entries}
	}
	_, last := set.Lines()
	if len(entries) == 0 {
		return insertion{last, 1, nil}
	}
	lines := []string{key + ":"}
	for _, entry := range entries {
		lines = append(lines, "  "+entry)
	}
	return insertion{last, set.Column(), lines}
}
