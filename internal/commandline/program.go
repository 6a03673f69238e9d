package commandline

// A Program is a program with commands.
type Program struct {
	Name     string
	Help     string    // its own help text
	Commands []Command // in the order in which they are listed
}

// names returns the names of the program's commands.
func (p *Program) names() []string {
	var list []string
	for _, c := range p.Commands {
		list = append(list, c.Name)
	}
	return list
}

// subNames returns the names of the command's own commands.
func (c *Command) subNames() []string {
	var list []string
	for _, s := range c.Subs {
		list = append(list, s.Name)
	}
	return list
}

// optionNames returns the names of the command's options, and --help.
func (c *Command) optionNames() []string {
	var list []string
	for _, o := range c.Options {
		list = append(list, o.Name)
	}
	return append(list, "--help")
}
