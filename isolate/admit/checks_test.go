package admit

import (
	"strings"
	"testing"

	"corral/isolate/wire"
	"corral/job"
)

// TestCheckSessionless: what a job without a session cannot have, with one reason each. Starlark programs can run in
// only one way.
func TestCheckSessionless(t *testing.T) {
	const none, star = wire.FlagNoRepo, string(job.ToolStarlark)
	for _, tt := range []struct {
		name string
		run  wire.Run
		step string // "" for none
	}{
		{"a program", wire.Run{}, ""},
		{"no repository", wire.Run{Flags: none | wire.FlagStdin | wire.FlagRepo, Dir: "."}, ""},
		{"a terminal without a repository", wire.Run{Flags: none | wire.FlagTerminal}, ""},
		{"read-only as well", wire.Run{Flags: none | wire.FlagReadOnly}, "workspace"},
		{"overlay as well", wire.Run{Flags: none | wire.FlagOverlay}, "workspace"},
		{"hooks of none", wire.Run{Flags: none | wire.FlagProtectHooks}, "workspace"},
		{"all of none", wire.Run{Flags: none | wire.FlagProtectAll}, "workspace"},
		{"the git directory of none", wire.Run{Flags: none, Common: "/srv/main/.git"}, "workspace"},
		{"and its descriptor", wire.Run{Flags: none | wire.FlagCommon, Common: "/srv/main/.git"}, "workspace"},
		{"a directory of none", wire.Run{Flags: none, Dir: "src"}, "cwd"},
		{"an absolute one", wire.Run{Flags: none, Dir: "/etc"}, "cwd"},
		{"overlay", wire.Run{Flags: wire.FlagOverlay}, "workspace"},
		{"a tool of sessions", wire.Run{Tool: string(job.ToolChanges)}, "session"},
		{"another of them, without a repository", wire.Run{Tool: string(job.ToolUnpack), Flags: none}, "session"},
		{"no tool", wire.Run{Tool: "rm", Flags: none}, "session"},
		{"starlark", wire.Run{Tool: star, Flags: none}, ""},
		{"starlark, with an input", wire.Run{Tool: star, Flags: none | wire.FlagStdin | wire.FlagRepo, Profile: "strict"}, ""},
		{"starlark in a repository", wire.Run{Tool: star}, "workspace"},
		{"starlark that reads one", wire.Run{Tool: star, Flags: wire.FlagReadOnly}, "workspace"},
		{"starlark on a layer", wire.Run{Tool: star, Flags: wire.FlagOverlay}, "workspace"},
		{"starlark that reads none", wire.Run{Tool: star, Flags: none | wire.FlagReadOnly}, "workspace"},
		{"starlark that protects", wire.Run{Tool: star, Flags: none | wire.FlagProtectHooks}, "workspace"},
		{"starlark in a directory", wire.Run{Tool: star, Flags: none, Dir: "src"}, "cwd"},
		{"starlark with a terminal", wire.Run{Tool: star, Flags: none | wire.FlagTerminal}, "request"},
		{"starlark with another profile", wire.Run{Tool: star, Flags: none, Profile: "default"}, "profile"},
	} {
		err := CheckSessionless(&Request{Run: tt.run}, true)
		if tt.step == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if tt.step != "" {
			refusedAt(t, tt.name, err, tt.step, 0)
		}
	}
	err := CheckSessionless(&Request{Run: wire.Run{Tool: star, Flags: none}}, false)
	refusedAt(t, "not installed", err, "tool", 0)
	if want := "corral-starlark is not installed"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "\nhint: ") {
		t.Errorf("%v", err)
	}
	if got := ProfileOf(&Request{Run: wire.Run{Tool: star}}, "default"); got != "strict" {
		t.Errorf("profile %q", got)
	}
}
