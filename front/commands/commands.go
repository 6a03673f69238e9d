// Package commands has the table of corral's commands.
package commands

import (
	"corral/front/cli"
	"corral/front/cli/audit"
	"corral/front/cli/cache"
	"corral/front/cli/changes"
	"corral/front/cli/ci"
	"corral/front/cli/config"
	"corral/front/cli/doctor"
	"corral/front/cli/index"
	"corral/front/cli/logs"
	"corral/front/cli/network"
	"corral/front/cli/output"
	"corral/front/cli/policy"
	"corral/front/cli/repo"
	"corral/front/cli/rootfs"
	"corral/front/cli/token"
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
		{"audit", audit.Help, audit.Command},
		{"cache", cache.Help, cache.Command},
		{"changes", changes.Help, changes.Command},
		{"ci", ci.Help, ci.Command},
		{"completion", completionHelp, completion},
		{"config", config.Help, config.Command},
		{"doctor", doctor.Help, doctor.Command},
		{"exec-server", server.ExecHelp, server.Exec},
		{"index", index.Help, index.Command},
		{"logs", logs.Help, logs.Command},
		{"mcp", server.MCPHelp, server.MCP},
		{"network", network.Help, network.Command},
		{"output", output.Help, output.Command},
		{"policy", policy.Help, policy.Command},
		{"repo", repo.Help, repo.Command},
		{"rootfs", rootfs.Help, rootfs.Command},
		{"serve", server.HTTPHelp, server.HTTP},
		{"token", token.Help, token.Command},
	}
}

// Corral returns corral with all its commands, those that it implements itself first.
func Corral() *commandline.Program {
	p := &commandline.Program{Name: "corral", Help: usage.Corral, Commands: []commandline.Command{
		commandline.Parse("run", usage.Run), commandline.Parse("session", usage.Session), commandline.Parse("ps", usage.Ps),
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
