package index

import "strings"

// classOf guesses the class of a text. It is Code if at least a third of the nonblank lines look like program lines or
// are fenced. So logs, stack traces, and compiler output that quotes little code are Prose. The guess uses only the ends
// of lines, their first words, and some operators, to be cheap compared to the other stages.
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

// codeLine reports whether a line, without surrounding spaces, looks like a program line.
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
	if k, ok := codeKeywords[word]; ok && strings.ContainsAny(l, k) {
		return true
	}
	return strings.HasPrefix(l, "//") || strings.HasPrefix(l, "/*") || strings.HasPrefix(l, "#include") ||
		strings.HasPrefix(l, "</") || strings.Contains(l, " := ") || strings.Contains(l, " => ") ||
		strings.Contains(l, "();") || strings.Contains(l, ") {")
}

const maxKeyword = 9

// keywords start program lines that also contain one of these characters: many are English words.
var codeKeywords = map[string]string{
	"func": "(", "def": ":", "class": ":{", "import": "\"'.{;", "from": "\"';", "return": "(;\"'+*.", "if": "(:{=;", "elif": ":",
	"else": "{:", "for": "({:;", "while": "(:;", "const": "=", "let": "=", "var": "=", "type": "={", "struct": "{", "public": "({;",
	"private": "({;", "static": "(={;", "void": "(", "int": "=(;", "package": ";", "use": "::;", "fn": "(", "impl": "{", "export": "={",
	"async": "(", "await": "(", "switch": "(", "case": ":", "function": "(", "SELECT": ",*", "INSERT": "(", "CREATE": "(",
}
