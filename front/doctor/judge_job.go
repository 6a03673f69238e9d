package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"corral/internal/lazyregexp"
)

func judgeSimple(e *evidence) (Status, string) {
	if e.stdout != "ready\n" {
		return Fail, fmt.Sprintf("sh -c 'echo ready' wrote %q and %q, exit code %d", clip(e.stdout), clip(e.stderr), e.result.ExitCode)
	}
	return OK, "sh answered"
}

// judgeIdentity looks at the job's user id and the line of its uid_map that maps it (user_namespaces(7)). Which id it has on the host is
// known outside the job alone: the map leads to the namespace around the job's, and that may be another one.
func judgeIdentity(e *evidence) (Status, string) {
	inside, err := strconv.ParseUint(e.section("id"), 10, 32)
	if err != nil {
		return Fail, fmt.Sprintf("user %q", clip(e.section("id")))
	}
	for line := range strings.Lines(e.section("uid_map")) {
		var from, to, size uint64
		if n, _ := fmt.Sscan(line, &from, &to, &size); n != 3 || inside < from || inside-from >= size {
			continue
		}
		switch {
		case inside == 0 || to+inside-from == 0:
			return Fail, fmt.Sprintf("user %d: root", inside)
		case size > 1<<16:
			return Fail, fmt.Sprintf("user %d: it is that user of the host too", inside)
		}
		return OK, fmt.Sprintf("user %d, another one on the host", inside)
	}
	return Fail, fmt.Sprintf("user %d, map %q", inside, clip(e.section("uid_map")))
}

func judgeRange(e *evidence) (Status, string) {
	var first, size uint64
	if n, _ := fmt.Sscanf(e.facts[factUsers].detail, "%d+%d", &first, &size); n != 2 {
		return Fail, "the supervisor does not report the range of the jobs' user ids"
	}
	if first < 1<<16 {
		return Fail, fmt.Sprintf("%d+%d: accounts of the host may have these ids", first, size)
	}
	for _, r := range e.host.subuid {
		if first < r.first+r.size && r.first < first+size {
			return Degraded, fmt.Sprintf("%d+%d overlaps with the range of user %s in /etc/subuid, %d+%d", first, size, r.owner, r.first, r.size)
		}
	}
	return OK, fmt.Sprintf("%d+%d", first, size)
}

func judgeFiles(e *evidence) (Status, string) {
	made, err := ownerOf(e.place.Repo() + "/made")
	owner, ownerErr := ownerOf(e.place.Repo())
	switch {
	case err != nil || ownerErr != nil:
		return Fail, fmt.Sprintf("the job's file: %v", err)
	case made != owner:
		return Fail, fmt.Sprintf("the job's file belongs to user %d, the repository to %d", made, owner)
	case e.section("owner") != e.section("id") || e.section("owned") != "owned":
		return Fail, fmt.Sprintf("in the job, the owner's file belongs to user %q and contains %q", clip(e.section("owner")),
			clip(e.section("owned")))
	}
	return OK, fmt.Sprintf("user %d", made)
}

func judgeIDMap(e *evidence) (Status, string) {
	for line := range strings.Lines(e.section("mountinfo")) {
		if m, ok := parseMount(line); ok && m.point == e.place.Repo() {
			// Linux 5.12 and later list it among the mount's options.
			if slices.Contains(m.options, "idmapped") {
				return OK, m.fsType
			}
			return Fail, fmt.Sprintf("the repository's mount (%s) has no id map", m.fsType)
		}
	}
	return Fail, "the repository is not a mount in the job"
}

func judgeNamespaces(e *evidence) (Status, string) {
	var shared []string
	for _, kind := range kinds {
		if got := e.field("ns", kind); got == "" || got == e.host.namespaces[kind] || !strings.HasPrefix(got, kind+":[") {
			shared = append(shared, kind)
		}
	}
	if len(shared) > 0 {
		return Fail, "shared with the host: " + strings.Join(shared, ", ")
	}
	return OK, strings.Join(kinds, ", ")
}

// maxProcesses is more than the processes of the script and of the jail.
const maxProcesses = 8

func judgeProcesses(e *evidence) (Status, string) {
	n := len(strings.Fields(e.section("processes")))
	detail := fmt.Sprintf("%d", n)
	if n == 0 || n > maxProcesses {
		return Fail, detail
	}
	return OK, detail
}

func judgePrivileges(e *evidence) (Status, string) {
	var bad []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v := e.field("status", set); strings.Trim(v, "0") != "" || v == "" {
			bad = append(bad, set+" "+v)
		}
	}
	if v := e.field("status", "NoNewPrivs"); v != "1" {
		bad = append(bad, "NoNewPrivs "+v)
	}
	if len(bad) > 0 {
		return Fail, clip(strings.Join(bad, ", "))
	}
	return OK, "five empty sets, no_new_privs"
}

func judgeFilter(e *evidence) (Status, string) {
	switch mode := e.field("status", "Seccomp"); {
	case mode != "2":
		return Fail, fmt.Sprintf("seccomp mode %q, not 2", clip(mode))
	case strings.Contains(e.section("unshare"), "made"):
		return Fail, "the job could make a user namespace"
	case e.section("unshare") == "":
		return OK, "seccomp mode 2"
	}
	return OK, "seccomp mode 2; a new user namespace was refused"
}

func judgeNetwork(e *evidence) (Status, string) {
	var names []string
	for line := range strings.Lines(e.section("devices")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	switch {
	case len(names) != 1 || names[0] != "lo":
		return Fail, fmt.Sprintf("interfaces %q", clip(strings.Join(names, " ")))
	case strings.Contains(e.section("sockets"), abstractName()):
		return Fail, "abstract unix sockets of the host are visible"
	}
	return OK, "lo"
}

func judgeServices(e *evidence) (Status, string) {
	switch {
	case e.reached || strings.Contains(e.stdout, "reached"):
		return Fail, "a job connected to doctor's own listener"
	case strings.Contains(e.stdout, "untried"):
		return OK, "not tried, because neither bash nor perl is installed; see network"
	}
	return OK, "a connection was refused"
}

// judgeNothing judges programs that print a line for each thing that they could do but must not.
func judgeNothing(e *evidence) (Status, string) {
	if e.result.ExitCode != 0 {
		return Fail, fmt.Sprintf("exit code %d: %s", e.result.ExitCode, clip(e.stderr))
	}
	if e.stdout != "" {
		return Fail, clip(strings.Join(strings.Split(strings.TrimSpace(e.stdout), "\n"), ", "))
	}
	return OK, "tried"
}

// Variables that corral itself sets, for jobs whose rules are about requests (docs/reference/configuration.md, "Requests and
// secrets"). They are written down here again because doctor believes nothing that the supervisor's code says; TestVariables compares.
const secretVariable = "CORRAL_SECRET"

var (
	trusted = []string{
		"SSL_CERT_FILE=/var/door/ca-certificates.crt",
		"REQUESTS_CA_BUNDLE=/var/door/ca-certificates.crt",
		"NODE_EXTRA_CA_CERTS=/var/door/authority.pem",
		"DENO_CERT=/var/door/authority.pem",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=/var/door/ca-certificates.crt",
	}
	// isPlaceholder matches a text that stands for secrets: it is valid for one job, and no secret itself.
	isPlaceholder = lazyregexp.New(`^corral-[A-Z2-7]{26,}$`)
)

// judgeEnvironment requires that a job has the variables of its request, in their order, and besides them only corral's own. Values
// count, too: a file of authorities or a token of the caller's is a leak, whatever its name.
func judgeEnvironment(e *evidence) (Status, string) {
	got := strings.Split(strings.TrimSuffix(e.stdout, "\n"), "\n")
	placeholder := ""
	for _, v := range got {
		if value, ok := strings.CutPrefix(v, secretVariable+"="); ok && isPlaceholder().MatchString(value) {
			placeholder = value
		}
	}
	others := slices.DeleteFunc(slices.Clone(got), func(v string) bool {
		_, value, _ := strings.Cut(v, "=")
		return slices.Contains(trusted, v) || placeholder != "" && value == placeholder
	})
	if !slices.Equal(others, e.env) {
		var names []string
		for _, v := range others {
			name, _, _ := strings.Cut(v, "=")
			names = append(names, name)
		}
		return Fail, "the job has " + clip(strings.Join(names, ", "))
	}
	detail := fmt.Sprintf("only the %d variables of its request", len(e.env))
	if n := len(got) - len(others); n > 0 {
		detail += fmt.Sprintf(" and %d of corral's own, for rules about requests", n)
	}
	return OK, detail
}

func judgeSensitive(e *evidence) (Status, string) {
	if !slices.ContainsFunc(e.result.Sensitive, func(p string) bool { return strings.HasPrefix(p, ".git") }) {
		return Fail, fmt.Sprintf("a git hook was changed, and %q was reported", e.result.Sensitive)
	}
	return OK, strings.Join(e.result.Sensitive, ", ")
}
