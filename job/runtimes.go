package job

// Runtimes returns the names of the runtimes that code can be written for, in display order. Package runtimes has the table of them, from
// which the list is generated: go test ./policy/runtimes -run TestDocument -update.
func Runtimes() []string {
	return []string{
		"node",
		"typescript",
		"python",
		"shell",
		"go",
		"java",
		"kotlin",
		"rust",
		"c",
		"cpp",
		"csharp",
		"ruby",
		"php",
		"perl",
		"r",
		"elixir",
	}
}
