package main

import "path/filepath"

// corralMakers returns the rows of corral, one for each of its interfaces.
func corralMakers() []peerMaker {
	return []peerMaker{
		{"corral, API", func(o *options) ([]*Row, func(), error) {
			r, done, err := apiRow(o)
			return []*Row{r}, done, err
		}},
		{"corral, API in a session", standingRows},
		{"corral run", one(commandRow)},
		{"corral, MCP by stdio", stdioRows},
		{"corral, command/exec", execRows},
		{"corral, sandbox_exec", sandboxRows},
	}
}

// runRows measures /bin/true: bare, in bubblewrap, and through corral's API and its command.
func runRows(o *options) ([]*Row, func(), error) {
	rows := []*Row{bare()}
	if row := bubblewrap(o, false); row.Missing == "" {
		rows = append(rows, row)
	}
	api, done, err := apiRow(o)
	if err != nil {
		return nil, nil, err
	}
	rows = append(rows, api, commandRow(o), versionRow(o))
	if o.base == "" {
		return rows, done, nil
	}
	other := *o
	other.bin = o.base
	finish, err := other.prepare()
	if err != nil {
		done()
		finish()
		return nil, nil, err
	}
	for _, r := range []*Row{commandRow(&other), versionRow(&other)} {
		r.Name += ", -base"
		rows = append(rows, r)
	}
	return rows, func() {
		done()
		finish()
	}, nil
}

// versionRow measures the start of the command, without a job.
func versionRow(o *options) *Row {
	return &Row{Name: "corral version", Sets: "nothing: the command alone", Run: command(filepath.Join(o.bin, "corral"), "version")}
}
