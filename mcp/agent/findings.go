package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"corral/internal/lazyregexp"
)

// failures are the lines in which test runners name a failed test.
var failures = lazyregexp.List(
	`^\s*--- FAIL: \S+`,                   // go test
	`^FAIL\t\S+`,                          // go test: a package
	`^(FAILED|ERROR) \S+(::\S+| - )`,      // pytest
	`^(FAIL|ERROR): \S+ \(\S+\)`,          // unittest
	`^\s*not ok\b`,                        // TAP: node --test, mocha, prove -v
	`^\s*✖ .+ \([\d.]+m?s\)$`,             // node --test
	`^\s*● .+ › .+`,                       // jest
	`^\s*✕ .+`,                            // jest, with --verbose
	`^FAIL \S+\.(js|jsx|ts|tsx|mjs|cjs)$`, // jest: a file
	`^test \S+ \.\.\. FAILED$`,            // cargo test
	`^rspec \S+:\d+ # .+`,                 // rspec
	`^\d+\) \S+::\S+`,                     // phpunit
	`^\s*✘ .+`,                            // phpunit --testdox
	`^#\s+Failed test\b`,                  // Test::More, under prove
	`^\d+/\d+ Test\s+#\d+: .*\*\*\*\w`,    // ctest
	`<<< (FAILURE|ERROR)!`,                // Maven Surefire
	`^\S+ > .+ FAILED$`,                   // Gradle
)

// failureMarks are words: each line that failures match has one of them. Most lines have none, and expressions are slow.
var failureMarks = []string{"FAIL", "ERROR", "not ok", "✖", "●", "✕", "✘", "rspec ", "Failed test", "***", "::"}

// numbered matches a failure of a list that mocha writes at its end, under the number of failures.
var (
	numberFailing = lazyregexp.New(`^\s*\d+ failing$`)
	numbered      = lazyregexp.New(`^\s+\d+\) \S`)
)

// namesFailure reports whether a line names a failed test. A test that TAP expects to fail has not.
func namesFailure(text string) bool {
	return slices.ContainsFunc(failureMarks, func(mark string) bool { return strings.Contains(text, mark) }) &&
		!strings.Contains(text, "# TODO") && !strings.Contains(text, "# SKIP") &&
		slices.ContainsFunc(failures(), func(re *regexp.Regexp) bool { return re.MatchString(text) })
}

// fails reports whether a line names a failed test, also in a list that began in an earlier line.
func (f *findings) fails(text string) bool {
	if strings.HasSuffix(text, " failing") && numberFailing().MatchString(text) {
		f.listed = true
		return false
	}
	return namesFailure(text) || f.listed && numbered().MatchString(text)
}

// maxLine is the maximum number of bytes shown of a line of long output.
const maxLine = 1000

// maxFindings is the maximum number of lines of one kind that a reply shows.
const maxFindings = 20

// contextMatches is up to how many matching lines are shown with the lines before and after them.
const contextMatches = 5

// A finding is a remarkable line.
type finding struct {
	line          int64
	text          string
	score         int
	before, after *string // the lines around it; nil: there is none, or it was not read yet
}

// findings are the lines of a text that name failed tests, and those that match an intent best.
type findings struct {
	intent string
	words  []string // of the intent, in lower case, without endings
	tests  []finding
	listed bool // a list of failed tests has begun
	failed int  // failed tests, those that are not in tests as well
	match  []finding
	lines  int    // lines that match, those that are not in match as well
	last   string // the line before the next one
}

// stopWords are words of an intent that say nothing about lines.
var stopWords = map[string]bool{
	"the": true, "and": true, "any": true, "are": true, "for": true, "from": true, "have": true, "how": true, "lines": true, "line": true,
	"output": true, "show": true, "that": true, "there": true, "was": true, "what": true, "when": true, "where": true, "which": true,
	"who": true, "why": true, "with": true, "find": true, "all": true,
}

func newFindings(intent string) findings {
	f := findings{intent: intent}
	for _, word := range strings.FieldsFunc(strings.ToLower(intent), func(r rune) bool { return strings.ContainsRune(" \t\n,;\"'?!()", r) }) {
		if len(word) < 3 || stopWords[word] {
			continue
		}
		f.words = append(f.words, stem(word))
	}
	return f
}

// stem returns a word without a usual ending, so that it is found in other forms.
func stem(word string) string {
	for _, end := range []string{"ures", "ure", "ing", "ions", "ion", "es", "ed", "s"} {
		if rest, ok := strings.CutSuffix(word, end); ok && len(rest) >= 4 {
			return rest
		}
	}
	return word
}

// see looks at a line.
func (f *findings) see(n int64, text string) {
	// Some runners name each failed test again at the end.
	if f.fails(text) && !f.named(strings.TrimSpace(text)) {
		if f.failed++; len(f.tests) < maxFindings {
			f.tests = append(f.tests, finding{line: n, text: text})
		}
	}
	if len(f.words) == 0 {
		return
	}
	before := f.last
	f.last = text
	if at := len(f.match) - 1; at >= 0 && f.match[at].line == n-1 {
		f.match[at].after = &text
	}
	score, lower := 0, strings.ToLower(text)
	for _, word := range f.words {
		if strings.Contains(lower, word) {
			score++
		}
	}
	if score == 0 {
		return
	}
	f.lines++
	m := finding{line: n, text: text, score: score}
	if n > 1 {
		m.before = &before
	}
	f.keep(m)
}

// keep adds a match. When there are maxFindings, it replaces the last one of the lowest score, if that is lower.
func (f *findings) keep(m finding) {
	if len(f.match) < maxFindings {
		f.match = append(f.match, m)
		return
	}
	least := 0
	for n := range f.match {
		if f.match[n].score <= f.match[least].score {
			least = n
		}
	}
	if f.match[least].score < m.score {
		f.match = append(append(f.match[:least:least], f.match[least+1:]...), m)
	}
}

// best returns the matches of the highest score, in the order of their lines.
func (f *findings) best() []finding {
	most := 0
	for _, m := range f.match {
		most = max(most, m.score)
	}
	return slices.DeleteFunc(slices.Clone(f.match), func(m finding) bool { return m.score < most })
}

// write writes what was found in lines from to to, in at most room bytes.
func (f *findings) write(b *strings.Builder, from, to int64, room int) {
	list := func(title string, all []finding, total int) {
		inside := slices.DeleteFunc(slices.Clone(all), func(one finding) bool { return one.line < from || one.line > to })
		if len(inside) == 0 {
			return
		}
		b.WriteString(title)
		shown := from - 1 // the last line that was
		around := len(inside) <= contextMatches
		for n, one := range inside {
			text := one.numbered(shown, around)
			if room -= len(text); room < 0 {
				fmt.Fprintf(b, "… and %d more\n", len(inside)-n+total-len(all))
				return
			}
			b.WriteString(text)
			if shown = one.line; around && one.after != nil {
				shown++
			}
		}
		if more := total - len(all); more > 0 {
			fmt.Fprintf(b, "… and %d more\n", more)
		}
	}
	list("… failed tests:\n", f.tests, f.failed)
	list(fmt.Sprintf("… lines that match %q:\n", f.intent), f.match, f.lines)
	if room >= 0 && (len(f.tests) > 0 || len(f.match) > 0) {
		b.WriteString("… the end:\n")
	}
}

// numbered returns the line with its number and, with around, the lines around it; of all those, what comes after line shown.
func (one *finding) numbered(shown int64, around bool) string {
	var b strings.Builder
	put := func(n int64, text string) {
		if n > shown {
			fmt.Fprintf(&b, "%d: %s\n", n, strings.TrimRight(text, " \t\r"))
		}
	}
	if around && one.before != nil {
		put(one.line-1, *one.before)
	}
	put(one.line, one.text)
	if around && one.after != nil {
		put(one.line+1, *one.after)
	}
	return b.String()
}

// named reports whether a line that names a failed test was seen before, but for white space around it.
func (f *findings) named(text string) bool {
	return slices.ContainsFunc(f.tests, func(one finding) bool { return strings.TrimSpace(one.text) == text })
}
