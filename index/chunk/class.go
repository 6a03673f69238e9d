package chunk

import "strings"

// classOf says what a text looks like. It is Code if at least a third of the lines with words look like lines of a program,
// or stand between fences; so a log is Prose, and a stack trace, and so is the output of a compiler unless it quotes
// much. It is a guess from the ends of lines, their first words and some operators: it costs less than the rest.
func classOf(text string) string {
	code, all := 0, 0
	fenced := false
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		all++
		if strings.HasPrefix(l, "```") || strings.HasPrefix(l, "~~~") {
			fenced = !fenced
			code++
		} else if fenced || codeLine(l) {
			code++
		}
	}
	if code > 0 && code*3 >= all {
		return Code
	}
	return Prose
}

// codeLine says whether a line, without spaces around it, looks like a program's.
func codeLine(l string) bool {
	switch l[len(l)-1] {
	case '{', ';':
		return true
	case '}':
		return len(l) <= 3 || strings.IndexByte(l, '{') > 0
	}
	word := l
	if i := strings.IndexAny(l[:min(len(l), maxKeyword+1)], " ("); i > 0 {
		word = l[:i]
	}
	if k, ok := keywords[word]; ok && strings.ContainsAny(l, k) {
		return true
	}
	return strings.HasPrefix(l, "//") || strings.HasPrefix(l, "/*") || strings.HasPrefix(l, "#include") ||
		strings.HasPrefix(l, "</") || strings.Contains(l, " := ") || strings.Contains(l, " => ") ||
		strings.Contains(l, "();") || strings.Contains(l, ") {")
}

const maxKeyword = 9

// keywords begin lines of programs that have one of these characters, too: many are English words.
var keywords = map[string]string{
	"func": "(", "def": ":", "class": ":{", "import": "\"'.{;", "from": "\"';", "return": "(;\"'+*.", "if": "(:{=;", "elif": ":",
	"else": "{:", "for": "({:;", "while": "(:;", "const": "=", "let": "=", "var": "=", "type": "={", "struct": "{", "public": "({;",
	"private": "({;", "static": "(={;", "void": "(", "int": "=(;", "package": ";", "use": "::;", "fn": "(", "impl": "{", "export": "={",
	"async": "(", "await": "(", "switch": "(", "case": ":", "function": "(", "SELECT": ",*", "INSERT": "(", "CREATE": "(",
}
