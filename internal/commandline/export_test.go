package commandline

// Placeholders and FixedWords are the tables of values.
var (
	Placeholders = placeholders
	FixedWords   = words
)
