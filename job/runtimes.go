package job

// Runtimes returns the names of the runtimes that code can be written for, in display order.
func Runtimes() []string {
	return []string{
		"node", "typescript", "python", "shell", "go", "java", "kotlin", "rust", "c", "cpp", "csharp", "ruby", "php", "perl", "r",
		"elixir",
	}
}
