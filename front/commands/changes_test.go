package commands

import (
	"fmt"
	"strings"
	"testing"

	"corral/front/server"
	"corral/job"
	"corral/workspace/changes/stream"
)

func TestChangesOptions(t *testing.T) {
	for _, tt := range []struct {
		args string
		want changesOptions
	}{
		{"show h", changesOptions{verb: "show", handle: "h"}},
		{"show --json h a/b c", changesOptions{verb: "show", handle: "h", paths: []string{"a/b", "c"}, json: true}},
		{"apply h a --dry-run --json", changesOptions{verb: "apply", handle: "h", paths: []string{"a"}, dry: true, json: true}},
		{"diff --supervisor s h -- -a --json", changesOptions{verb: "diff", handle: "h", paths: []string{"-a", "--json"}, supervisor: "s"}},
		{"discard h", changesOptions{verb: "discard", handle: "h"}},
	} {
		var o changesOptions
		err := o.parse(strings.Fields(tt.args))
		if err != nil || fmt.Sprintf("%+v", o) != fmt.Sprintf("%+v", tt.want) {
			t.Errorf("%q: %+v, %v", tt.args, o, err)
		}
	}
}

// TestClaim checks that the audit log names the user of a job as it does in records of other commands.
func TestClaim(t *testing.T) {
	if got, want := claimOf("show"), (job.Claim{Tool: "changes show", Principal: server.UserPrincipal()}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestPathsBelow checks that paths outside of the repository are refused.
func TestPathsBelow(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"a/b", "a/b"},
		{"./a//b/", "a/b"},
		{".", "."},
		{"/srv/app/x", "x"},
		{"/srv/app", "."},
		{"a/../b", "b"},
		{"..a", "..a"},
		{"", ""},
		{"..", ""},
		{"a/../../b", ""},
		{"/srv/application/x", ""},
		{"/etc/passwd", ""},
	} {
		got, err := pathsBelow("/srv/app", []string{tt.path})
		if strings.Join(got, " ") != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: %q, %v", tt.path, got, err)
		}
	}
}

func TestChangeLine(t *testing.T) {
	for _, tt := range []struct {
		e    stream.Entry
		want string
	}{
		{stream.Entry{Path: "a", Kind: job.ChangeModified, Type: job.TypeFile, Size: 2048}, "modified     2.0 KiB  a\n"},
		{stream.Entry{Path: "\x1b[2J", Kind: job.ChangeAdded, Type: job.TypeLink, Link: "\nx"}, `added                 "\x1b[2J" -> "\nx"` + "\n"},
		{stream.Entry{Path: "d", Kind: job.ChangeDeleted, Type: job.TypeDirectory, OldSize: 5, Below: 3}, "deleted      5 bytes  d/ (3 below)\n"},
		{stream.Entry{Path: "d", Kind: job.ChangeDeleted, Type: job.TypeDirectory}, "deleted      0 bytes  d/\n"},
		{stream.Entry{Path: "d", Kind: job.ChangeReplaced, Type: job.TypeDirectory, OldType: job.TypeFile}, "replaced              d/ (was a file)\n"},
		{stream.Entry{Path: "x", Kind: job.ChangeMode, Type: job.TypeFile, Mode: 0o755, OldMode: 0o644}, "mode            0755  x (was 0644)\n"},
		{stream.Entry{Path: "x", Kind: job.ChangeModified, Type: job.TypeFile, OldType: job.TypeFile, Mode: 0o666, OldMode: 0o644}, "modified     0 bytes  x (0666, was 0644)\n"},
		{stream.Entry{Path: "x", Kind: job.ChangeModified, Type: job.TypeFile, OldType: job.TypeFile, Mode: 0o664, OldMode: 0o664}, "modified     0 bytes  x\n"},
		{stream.Entry{Path: "x", Kind: job.ChangeAdded, Type: job.TypeFile, Mode: 0o666}, "added        0 bytes  x (0666)\n"},
		{stream.Entry{Path: "x", Kind: job.ChangeAdded, Type: job.TypeFile, Mode: 0o755}, "added        0 bytes  x\n"},
		{stream.Entry{Path: "d", Kind: job.ChangeAdded, Type: job.TypeDirectory, Mode: 0o777}, "added                 d/ (0777)\n"},
		{stream.Entry{Path: "l", Kind: job.ChangeAdded, Type: job.TypeLink, Mode: 0o777, Link: "x"}, "added                 l -> x\n"},
		{stream.Entry{Path: "p", Kind: job.ChangeAdded, Type: job.TypeOther, State: stream.Skipped}, "added                 p (skipped: a FIFO, a socket or a device)\n"},
	} {
		if got := changeLine(&tt.e); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
