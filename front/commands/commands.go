// Package commands has the table of corral's commands.
package commands

import (
	"corral/front/ci"
	"corral/front/cli"
	"corral/front/server"
	"corral/internal/commandline"
	"corral/internal/usage"
)

// A Row is a command that corral-front implements.
type Row struct {
	Name string
	Help string
	Run  cli.Command
}

// Table returns the commands that corral-front implements and people type, in alphabetical order.
func Table() []Row {
	return []Row{
		{"audit", auditHelp, auditCommand},
		{"cache", cacheHelp, cacheCommand},
		{"changes", changesHelp, changesCommand},
		{"ci", ci.Help, ci.Command},
		{"codex-environment", server.EnvironmentHelp, server.CodexEnvironment},
		{"completion", completionHelp, completion},
		{"config", configHelp, configCommand},
		{"doctor", doctorHelp, doctorCommand},
		{"exec-server", server.ExecHelp, server.Exec},
		{"index", indexHelp, indexCommand},
		{"logs", logsHelp, logsCommand},
		{"mcp", server.MCPHelp, server.MCP},
		{"network", networkHelp, networkCommand},
		{"output", outputHelp, outputCommand},
		{"policy", policyHelp, policyCommand},
		{"repo", repoHelp, repoCommand},
		{"rootfs", rootfsHelp, rootfsCommand},
		{"serve", server.HTTPHelp, server.HTTP},
		{"token", tokenHelp, tokenCommand},
	}
}

// Corral returns corral with all its commands, those that it implements itself first.
func Corral() *commandline.Program {
	p := &commandline.Program{Name: "corral", Help: usage.Corral, Commands: []commandline.Command{
		commandline.Parse("run", usage.Run), commandline.Parse("agent", usage.Agent),
		commandline.Parse("shell", usage.Shell),
		commandline.Parse("session", usage.Session), commandline.Parse("ps", usage.Ps),
		commandline.Parse("kill", usage.Kill), commandline.Parse("drain", usage.Drain), commandline.Parse("reload", usage.Reload),
		commandline.Parse("top", usage.Top),
	}}
	for _, row := range Table() {
		p.Commands = append(p.Commands, commandline.Parse(row.Name, row.Help))
	}
	help := commandline.Command{Name: "help", Summary: "explains a command"}
	for _, c := range p.Commands {
		help.Subs = append(help.Subs, commandline.Sub{Name: c.Name, Text: c.Summary})
	}
	return &commandline.Program{Name: p.Name, Help: p.Help, Commands: append(p.Commands,
		help, commandline.Command{Name: "version", Summary: "prints the version"})}
}

// Corrald returns the command line of the supervisor.
func Corrald() *commandline.Command {
	c := commandline.Parse("corrald", usage.Corrald)
	return &c
}
