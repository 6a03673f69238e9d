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
	former := x.Settings
	renewed := x.Renew(func(*Settings) {}).Renew(func(s *Settings) { s.Repo = "other" })
	if x.Repo != "app" || renewed.Repo != "other" {
		t.Error("the change is not of the new Suite alone")
	}
	renewed.Repo = former.Repo
	if !reflect.DeepEqual(renewed.Settings, former) { // no tested field is a function
		t.Errorf("%+v, and %+v before", renewed.Settings, former)
	}
	if renewed.shared != x.shared {
		t.Error("background jobs are not shared")
	}
}
