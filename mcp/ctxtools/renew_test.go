package ctxtools

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"corral/internal/test/mcptest"
)

// TestRenew: a renewed Suite has every setting of the former one that is not changed, and its background jobs.
func TestRenew(t *testing.T) {
	f := mcptest.NewFakeRunner()
	x, _ := newCtx(t, f)
	x.Paths, x.Repo, x.Secrets, x.Runtimes = map[string]string{"app": "/a"}, "app", []string{"s"}, []string{"shell"}
	x.BackgroundLife, x.MaxBackground, x.MaxBackgroundAll, x.Plain = time.Hour, 1, 2, true
	x.Log = slog.New(slog.DiscardHandler)
	var same *Suite
	renewed := x.Renew(func(n *Suite) { same = n }).Renew(func(*Suite) {})
	if same == x || renewed == same {
		t.Fatal("not a new Suite")
	}
	a, b := reflect.ValueOf(x).Elem(), reflect.ValueOf(renewed).Elem()
	for i := range a.NumField() {
		field := a.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if a.Field(i).IsZero() || !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) { // no tested field is a function
			t.Errorf("%s: %v, and %v before", field.Name, b.Field(i), a.Field(i))
		}
	}
	if renewed.root() != x || x.root() != x {
		t.Error("background jobs are not shared")
	}
}
