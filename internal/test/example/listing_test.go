package example

import (
	"slices"
	"strings"
	"testing"
)

const listed = `# page

<!-- not run: needs a Mac -->

~~~sh
first
~~~

Text.

1. An item:

   <!-- run: as ada -->
   ~~~
   $ cd app && ls
   a
     b

   $ printf x \
     y
   # id
   ~~~

<!-- run: write /etc/x.yaml -->
~~~yaml
a: 1
~~~

~~~yaml
b: 1
~~~

<!-- tested: TestX -->
~~~console
$ true
~~~

<!-- run: as root, in the background -->
~~~sh
serve --a \
  --b

other
~~~
`

func TestListings(t *testing.T) {
	list, err := listings(page(listed))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var steps []Step
	for _, l := range list {
		got = append(got, l.How+": "+l.What)
		s, err := l.Steps()
		if err != nil {
			t.Error(err)
		}
		steps = append(steps, s...)
	}
	if want := []string{"not run: needs a Mac", "run: as ada", "run: write /etc/x.yaml", "tested: TestX", "run: as root, in the background"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	want := []Step{
		{Line: 15, User: "ada", Command: "cd app && ls", Output: "a\n  b"},
		{Line: 19, User: "ada", Command: "printf x \\\n  y"},
		{Line: 21, User: "ada", Command: "id"},
		{Line: 25, File: "/etc/x.yaml", Text: "a: 1\n"},
		{Line: 40, User: "root", Background: true, Command: "serve --a \\\n  --b"},
		{Line: 43, User: "root", Background: true, Command: "other"},
	}
	if !slices.Equal(steps, want) {
		t.Errorf("%+v", steps)
	}
}

// TestListingsRefuses: comments from which no step would follow are errors.
func TestListingsRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"~~~sh\na\n", "line 1: the block is not closed"},
		{"<!-- tested: TestX -->\n\n<!-- run: as ada -->\n\ntext\n", "line 4: the comment before it is for no block"},
		{"<!-- run: ada -->\n~~~sh\na\n~~~\n", `"ada" must be`},
		{"<!-- run: as ada, please -->\n~~~sh\na\n~~~\n", `"as ada, please" must be`},
		{"<!-- run: as ada -->\n~~~yaml\na\n~~~\n", `must be`},
		{"<!-- run: as ada -->\n~~~console\nout\n$ a\n~~~\n", "line 3: output before the first command"},
	} {
		list, err := listings(page(tt.text))
		for _, l := range list {
			if err == nil {
				_, err = l.Steps()
			}
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
}
