package logtest

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"strings"
)

// realLogs are what real programs wrote about small projects with mistakes in them: make with gcc, go test, pytest, npm, cargo, java
// and its logger, a Python program with its tracebacks, a Go program with slog, http.server of Python, and rsyslogd.
//
//go:embed testdata
var realLogs embed.FS

// Real returns the logs of real programs, by kind.
func Real() map[string]*Log {
	logs := map[string]*Log{}
	var l *Log
	for row := range strings.Lines(string(read("planted.txt"))) {
		row = strings.TrimSuffix(row, "\n")
		words, part, planted := strings.Cut(row, "\t")
		switch {
		case strings.HasPrefix(row, "#"):
		case !planted:
			l = &Log{Text: read(row + ".log")}
			logs[row] = l
		default:
			l.plant(words, part)
		}
	}
	return logs
}

func read(name string) []byte {
	text, err := realLogs.ReadFile("testdata/" + name)
	if err != nil {
		panic(fmt.Sprintf("logtest: %v", err)) // the files are part of the program
	}
	return text
}

// plant adds the only line of l that contains part.
func (l *Log) plant(words, part string) {
	if strings.Count(string(l.Text), part) != 1 {
		panic(fmt.Sprintf("logtest: %q is not in exactly one line", part))
	}
	before, _, _ := strings.Cut(string(l.Text), part)
	start := strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(string(l.Text[start:]), "\n")
	l.Planted = append(l.Planted, Planted{
		Line: line, Number: int64(strings.Count(before, "\n")) + 1, Query: words, Intent: intent(len(l.Planted), words),
	})
}

// WithoutPlanted returns the log of a later run, in which nothing was planted.
func (l *Log) WithoutPlanted() io.Reader {
	planted := map[string]bool{}
	for _, p := range l.Planted {
		planted[p.Line] = true
	}
	var rest bytes.Buffer
	for line := range strings.Lines(string(l.Text)) {
		if !planted[strings.TrimSuffix(line, "\n")] {
			rest.WriteString(line)
		}
	}
	return &rest
}
