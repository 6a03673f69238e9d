package main

import (
	"os"
	"strings"
	"testing"

	"corral/store/index"
)

// learn indexes a text in a state directory, as a server does.
func learn(t testing.TB, state string, b index.Base, text string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := index.Open(f, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Add(t.Context(), b, index.Source{Label: "notes", Fixed: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}
