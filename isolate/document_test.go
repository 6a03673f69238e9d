package isolate

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/meter"
	"corral/isolate/probe"
	"corral/isolate/sessions"
	"corral/isolate/wire"
	"corral/job"
)

// section returns the rows of a table in docs/reference/limits.md.
func section(t *testing.T, heading string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no section %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return slices.DeleteFunc(regexp.MustCompile(`(?m)^\|.*$`).FindAllString(rest, -1), func(row string) bool {
		return row == "| | |" || strings.HasPrefix(row, "|-")
	})
}

// TestDocumentedLimits: docs/reference/limits.md has the values of the code. On a failure, copy the rows this test
// prints.
func TestDocumentedLimits(t *testing.T) {
	l := map[int]int64{}
	for _, r := range host.Rlimits(job.Defaults(), 0) {
		l[r.Resource] = int64(r.Soft)
	}
	slot, err := os.ReadFile("../cmd/corral-init/stub/slot.c")
	if err != nil {
		t.Fatal(err)
	}
	terminals := regexp.MustCompile(`newinstance[^"]*,max=(\d+)"`).FindSubmatch(slot)
	if terminals == nil || l[unix.RLIMIT_CORE] != 0 || l[unix.RLIMIT_RTPRIO] != 0 || l[unix.RLIMIT_NICE] != 0 {
		t.Fatalf("%v, terminals %s", l, terminals)
	}
	same := func(heading string, want []string) {
		t.Helper()
		if got := section(t, heading); !slices.Equal(got, want) {
			t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	same("Fixed limits", []string{
		"| core dumps | none (RLIMIT_CORE 0) |",
		fmt.Sprintf("| locked memory | %d MiB |", l[unix.RLIMIT_MEMLOCK]>>20),
		fmt.Sprintf("| POSIX message queues | %d KiB |", l[unix.RLIMIT_MSGQUEUE]>>10),
		fmt.Sprintf("| pending signals | %s |", thousands(int(l[unix.RLIMIT_SIGPENDING]))),
		"| real-time priority, raised niceness | none |",
		fmt.Sprintf("| stack | %d MiB, may be raised by the job |", l[unix.RLIMIT_STACK]>>20),
		fmt.Sprintf("| terminals | %s |", terminals[1]),
		"| epoll watches | by the job's memory, some 200 bytes each, and by `fs.epoll.max_user_watches` of the host: each job is a user of its own. " +
			"The kernel ends about a million in a second, and a job's result waits for that |",
		"| inotify instances, watches | a quarter of `fs.inotify.max_user_instances` and `max_user_watches` of the host, which all jobs of a jail have together |",
		fmt.Sprintf("| POSIX record locks | %s, looked at four times a second while the host has some %s more than before; more end the job, limit `locks` |",
			thousands(meter.MaxLocks), thousands(meter.ManyLocks/10_000*10_000)),
		fmt.Sprintf("| arguments and environment | %d MiB together for corral; the kernel's own limit is 2 MiB at a stack of 8 MiB |", wire.MaxPayload>>20),
	})
	c := Config{Instance: "test", Programs: "/", StateDir: t.TempDir()}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	same("Limits of the supervisor", []string{
		fmt.Sprintf("| jails at once; an unused one makes room | %s (`max_jails`), a user who is not root leaves a quarter to others |", thousands(c.MaxJails)),
		fmt.Sprintf("| jobs at once of one connection | %s |", thousands(maxClientRuns)),
		fmt.Sprintf("| further connections of one user, for all but starting jobs and sessions | %s |", thousands(maxUserAsking)),
		fmt.Sprintf("| connections of all users, with those | %s |", thousands(maxConnections)),
		fmt.Sprintf("| sessions being opened for one user; for all | %s; %s |", thousands(sessions.MaxUserOpenings), thousands(sessions.MaxOpenings)),
		fmt.Sprintf("| lines about connections of a user's jobs in the diagnostic log | %d in any second; the next line says how many were omitted |", door.MaxLines),
		fmt.Sprintf("| looks at a user's files that have not been answered; of all users | %s; %s |", thousands(probe.MaxUser), thousands(probe.MaxAll)),
		fmt.Sprintf("| how long a file system may take to answer a look | %d s |", probe.DefaultPatience/time.Second),
		fmt.Sprintf("| users of one jail, with waiting slots and the scanner | %s |", thousands(host.JobUIDs)),
		fmt.Sprintf("| layers with changes that are kept for one user | %d, for %d days (`layers.keep`) |", job.MaxKeptLayers, int(c.Layers.Keep.Hours()/24)),
		fmt.Sprintf("| memory of the scanner | %d GiB |", cell.ScannerMemory>>30),
	})
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
