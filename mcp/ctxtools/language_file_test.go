package ctxtools

import (
	"strings"
	"testing"
)

// TestWithFile: where each language's program reads the file.
func TestWithFile(t *testing.T) {
	const here = "<here>"
	for _, tt := range []struct{ language, code, want string }{
		{"javascript", "f()", "<here>f()"},
		{"javascript", "#!/usr/bin/env node\nf()", "<here>//#!/usr/bin/env node\nf()"},
		{"typescript", "f()", "<here>f()"},
		{"shell", "#!/bin/sh\nfor x; do :; done", "<here>#!/bin/sh\nfor x; do :; done"},
		{"python", "for x in y: pass", "<here>\nfor x in y: pass"},
		{"python", "\"doc\"\nfrom __future__ import annotations # why\nx", "\"doc\"\nfrom __future__ import annotations ; <here># why\nx"},
		{"python", "from __future__ import (a,\n b)\nx", "from __future__ import (a,\n b); <here>\nx"},
		{"ruby", "puts 1", "<here>puts 1"},
		{"ruby", "=begin\n=end", "<here>\n=begin\n=end"},
		{"perl", "print 1", "<here>print 1"},
		{"perl", "=pod\n\n=cut", "<here>\n# line 1\n=pod\n\n=cut"},
		{"r", "cat(1)", "<here>cat(1)"},
		{"elixir", "IO.puts(1)", "<here>IO.puts(1)"},
		{"php", "echo 1;", "<?php <here>echo 1;"},
		{"php", "<?php echo 1;", "<?php  <here>echo 1;"},
		{"php", "Hello <?= 1 ?>", "<?php <here>?>Hello <?= 1 ?>"},
		{"php", "<?php\n// c\ndeclare(strict_types=1);\nnamespace A\\B;\necho 1;", "<?php\n// c\ndeclare(strict_types=1);\nnamespace A\\B; <here>\necho 1;"},
		{"php", "<?php\n/* c */ namespace A;\necho 1;", "<?php\n/* c */ namespace A; <here>\necho 1;"},
	} {
		front := readers[tt.language].front
		if front == "" || strings.Contains(front, "\n") && tt.language != "php" {
			t.Errorf("%s: %q", tt.language, front)
		}
		got := strings.Replace(languageOf(Language(tt.language)).WithFile(tt.code), front, here, 1)
		if got != tt.want {
			t.Errorf("%s: %q: got %q, want %q", tt.language, tt.code, got, tt.want)
		}
	}
	for _, tt := range []struct{ language, code, front, back string }{
		{"go", "f()", `package main; import corral_os "os"; import corral_fmt "fmt"; func main() { f()`, "}()\n"},
		{"go", "package main\nfunc main() {}", "package main; import corral_os \"os\"; import corral_fmt \"fmt\"\nfunc main() {}", "}()\n"},
		{"rust", "f();", "fn main() { f();\n}", "corral_path);\n"},
		{"rust", "#![allow(x)]\npub fn main() {}", "#![allow(x)]\npub fn main() {}", "corral_path);\n"},
		{"csharp", "using X;\nclass P { public static async Task Main() {} }", "using static CorralFile; using X;\nclass", "}\n"},
		{"csharp", "Console.WriteLine(1);", "string file_path = ", "Console.WriteLine(1);"},
	} {
		if got := languageOf(Language(tt.language)).WithFile(tt.code); !strings.HasPrefix(got, tt.front) || !strings.HasSuffix(got, tt.back) {
			t.Errorf("%s: %q: got %q", tt.language, tt.code, got)
		}
	}
	for _, l := range languages {
		if _, ok := readers[l.Name]; !ok {
			t.Errorf("%s has no reader", l.Name)
		}
	}
}
