package search_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"corral/store/index"
	"corral/store/index/db"
	"corral/store/index/search"
)

// TestHostileWords checks that correcting a word examines a bounded number of similar words.
func TestHostileWords(t *testing.T) {
	state, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	x, err := index.Open(state, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := index.Base{Repo: "/repo", Principal: "one"}
	var text strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&text, "qwertyuiopasdfgh%c%c%cjklzxcvbnm\n", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26)
	}
	_, err = x.Add(t.Context(), id, index.Source{Label: "l"}, strings.NewReader(text.String()))
	if cerr := x.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	b, _, err := db.Open(t.Context(), int(state.Fd()), id, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	tx, err := b.Read.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var words []string
	for i := range 20 {
		words = append(words, fmt.Sprintf("qwertyuiopasdfgh%cjklzxcvbnm", 'a'+i))
	}
	n, err := search.Gathered(t.Context(), tx, search.Query{Text: strings.Join(words, " "), Limit: 3})
	if err != nil || n == 0 || n > search.MaxGathered {
		t.Errorf("%d words were examined, %v", n, err)
	}
}
