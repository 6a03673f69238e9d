package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"corral/internal/config/strict"
	"corral/job"
	"corral/policy/network"
)

const topKeys = "version, uids, repos, toolchains, etc_files, own_directories, defaults, ceilings, profiles, network, secrets, network_cache, network_connections, jail_idle, max_jobs, " +
	"max_jobs_per_user, user_memory, max_jails, warm_slots, max_warm_slots, audit, layers, runtime, output, artifacts, principals, http, exec_server, sandbox, ctx, index, starlark, " +
	"telemetry"

// hosts returns the entries of a list of n long names.
func hosts(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("h%03d.%sexample", i, strings.Repeat("long.", 47)))
	}
	return strings.Join(all, ", ")
}

// beyondSchema are the rows of TestErrors whose mistakes a schema does not express: bounds of numbers with a unit, and what depends on
// other keys, other files or the machine.
var beyondSchema = strings.Split("two documents; size, small; time, short; above the ceiling; unlimited above the ceiling; path of etc; pattern of etc; path "+
	"with dots; repository twice; nobody; former token without an end; former token is the token; token of the past; user ids, "+
	"far; base name of none; one base name; one id; id of controls; runtime, twice; profile, near; profile, far; profile that is "+
	"there; repository above its ceiling; repository above the ceiling; profile above the ceiling; profile above its ceiling; "+
	"runtime above the ceiling; runtime above its duration; network of calls; value, NUL; executable, not clean; executable, a "+
	"directory; duration, long; duration, short; wait, long; keep; ttl; artifacts, bytes; audit, size; principal, twice; "+
	"principal, another's token; listen, number; body; exec listen, twice; exec peer; exec budget; exec profile; sandbox timeout; "+
	"sandbox output; sandbox repository; ctx repository; ctx life; index time; index size; starlark repository; starlark memory; "+
	"starlark time; traces, no file; network, an empty entry; network, preset as a host; network, preset and more; network, ports "+
	"of tcp; network, private bits; network, private, twice; network, bytes; network, many entries; network, large; session", "; ")

// TestErrors: a mistake is reported with its place, nothing of its file is used, and the schema refuses it where it can.
func TestErrors(t *testing.T) {
	const v = "version: 1\n" // the tested lines begin at line 2
	tests := []struct{ name, file, want string }{
		{"empty", "", "f: the file is empty"},
		{"comments", "# no\n", "f: the file is empty"},
		{"no version", "max_jobs: 1\n", "f:1:1: missing `version`: must be `version: 1`"},
		{"version", "version: 2\n", "f:1:10: `version`: must be 1, got 2"},
		{"version as text", "version: '1'\n", "f:1:10: `version`: must be 1, got \"1\""},
		{"a list", "- 1\n", "f:1:1: the file: must be a mapping (`key: value`), got a list"},
		{"text", "hello\n", "f:1:1: the file: must be a mapping (`key: value`), got \"hello\""},
		{"syntax", v + "repos: [\n", "f:2: did not find expected node content"},
		{"tab", v + "uids:\n\tbase: 1\n", "f:3: found character that cannot start any token"},
		{"two documents", v + "---\nversion: 1\n", "f:2:1: a file must have one document, got a second one"},
		{"unknown, near", v + "defaults: {memry: 1GiB}\n", "f:2:12: unknown key `memry`: did you mean `memory`?"},
		{"unknown, top", v + "toolchain: []\n", "f:2:1: unknown key `toolchain`: did you mean `toolchains`?"},
		{"unknown, far", v + "uids: {color: 1}\n", "f:2:8: unknown key `color`: must be one of base, size"},
		{"unknown, upper case", v + "Max_Jobs: 1\n", "f:2:1: unknown key `Max_Jobs`: did you mean `max_jobs`?"},
		{"merge", v + "uids: &u {base: 65536}\n<<: *u\n", "f:3:1: unknown key `<<`: must be one of " + topKeys},
		{"twice", v + "max_jobs: 1\nmax_jobs: 2\n", "f:3:1: duplicate key `max_jobs`, first on line 2"},
		{"twice, below", v + "defaults:\n  pids: 5\n  pids: 6\n", "f:4:3: duplicate key `pids`, first on line 3"},
		{"key", v + "[a]: 1\n", "f:2:1: a key must be a name, got a list"},
		{"alias", v + "toolchains: &a [/x]\nrepos: *a\n", "f:3:8: `repos`: must be a list, got an alias"},
		{"size", v + "defaults: {memory: 512XB}\n", "f:2:20: `memory`: must be a size such as 512MiB, got \"512XB\""},
		{"size as a fraction", v + "defaults: {memory: 1.5}\n", "f:2:20: `memory`: must be a size such as 512MiB, got 1.5"},
		{"size as a list", v + "defaults: {memory: [1]}\n", "f:2:20: `memory`: must be a size such as 512MiB, got a list"},
		{"size, small", v + "defaults: {memory: 1k}\n", "f:2:20: `memory`: must be between 4MiB and 1024TiB, got 1k"},
		{"no value", v + "defaults: {memory: }\n", "f:2:20: `memory`: must be a size such as 512MiB, got no value"},
		{"no mapping", v + "defaults:\n", "f:2:10: `defaults`: must be a mapping (`key: value`), got no value"},
		{"count as text", v + "defaults: {pids: '5'}\n", "f:2:18: `pids`: must be a positive integer, got \"5\""},
		{"count, negative", v + "max_jobs: -1\n", "f:2:11: `max_jobs`: must be a positive integer, got -1"},
		{"count, large", v + "max_jobs: 1000000\n", "f:2:11: `max_jobs`: must be between 1 and 65536, got 1000000"},
		{"cpus", v + "defaults: {cpus: all}\n", "f:2:18: `cpus`: must be a number of CPUs such as 1.5, got \"all\""},
		{"not a number", v + "defaults: {cpus: .nan}\n", "f:2:18: `cpus`: must be a number of CPUs such as 1.5, got .nan"},
		{"time", v + "jail_idle: soon\n", "f:2:12: `jail_idle`: must be a time such as 30s, got \"soon\""},
		{"time, short", v + "jail_idle: 1ms\n", "f:2:12: `jail_idle`: must be between 1s and 720h0m0s, got 1ms"},
		{"not liftable", v + "defaults: {memory: unlimited}\n", "f:2:20: `memory`: cannot be unlimited"},
		{"above the ceiling", v + "defaults: {pids: 900}\nceilings: {pids: 800}\n", "f:2:18: `pids`: 900 is above the ceiling of 800"},
		{"unlimited above the ceiling", v + "ceilings: {disk: 1GiB}\ndefaults: {disk: unlimited}\n", "f:3:18: `disk`: unlimited is above the ceiling of 1GiB"},
		{"boolean", v + "own_directories: yes\n", "f:2:18: `own_directories`: must be true or false, got \"yes\""},
		{"path of etc", v + "etc_files: [/etc/a, /etc/../x]\n", "f:2:21: `etc_files`: must be a path below /etc such as /etc/acme/client.conf, got \"/etc/../x\""},
		{"all of etc", v + "etc_files: [/etc]\n", "f:2:13: `etc_files`: must be a path below /etc such as /etc/acme/client.conf, got \"/etc\""},
		{"pattern of etc", v + "etc_files: ['/etc/[a']\n", "f:2:13: `etc_files`: must be a path below /etc such as /etc/acme/client.conf, got \"/etc/[a\""},
		{"path", v + "toolchains: [go]\n", "f:2:14: `toolchains`: must be an absolute path, got \"go\""},
		{"path with dots", v + "toolchains: [/usr/../go/]\n", "f:2:14: `toolchains`: write \"/usr/../go/\" as \"/go\""},
		{"toolchains", v + "toolchains: /usr/go\n", "f:2:13: `toolchains`: must be a list, got \"/usr/go\""},
		{"repository", v + "repos: [/srv/x]\n", "f:2:9: `repos`: must be a mapping (`key: value`), got \"/srv/x\""},
		{"repository without path", v + "repos:\n  - users: [1]\n", "f:3:5: missing `path` of a repository"},
		{"repository twice", v + "repos: [{path: /x}, {path: /x}]\n", "f:2:21: duplicate repository \"/x\", first at f:2:9"},
		{"no users", v + "repos: [{path: /x, users: []}]\n", "f:2:27: `users` is empty: name at least one, or leave it out"},
		{"nobody", v + "repos: [{path: /x, users: [bob]}]\n", "f:2:28: `users`: unknown user \"bob\""},
		{"user", v + "repos: [{path: /x, users: [true]}]\n", "f:2:28: `users`: must be a user's name or number, got true"},
		{"user without a name", v + "repos: [{path: /x, users: [\"\"]}]\n", "f:2:28: `users`: must be a user's name or number, got \"\""},
		{"principal of another kind", v + "principals: [ci]\n", "f:2:14: `principals`: must be a mapping (`key: value`), got \"ci\""},
		{"former token without an end", v + "principals: [{name: a, token_sha256: " + hash1 + ", previous_sha256: " + hash2 + "}]\n", "f:2:14: `previous_sha256` and `previous_expires` of a principal need each other"},
		{"former token is the token", v + "principals: [{name: a, token_sha256: " + hash1 + ", previous_sha256: " + hash1 + ", previous_expires: \"2030-01-01T00:00:00Z\"}]\n", "f:2:14: `previous_sha256` is `token_sha256`: the token would outlive `expires`"},
		{"token of the past", v + "principals: [{name: a, token_sha256: " + hash1 + ", expires: \"1969-12-31T00:00:00Z\"}]\n", "f:2:113: `expires`: must be a time such as \"2026-12-23T10:00:00Z\" (RFC 3339), got \"1969-12-31T00:00:00Z\""},
		{"user, negative", v + "repos: [{path: /x, users: [-1]}]\n", "f:2:28: `users`: must be between 0 and 4294967294, got -1"},
		{"user ids, low", v + "uids: {base: 1000}\n", "f:2:14: `base`: must be between 0x10000 and 0xfffffffe, got 1000"},
		{"user ids, far", v + "uids: {base: 0xffff0000, size: 65536}\n", "f:2:7: `uids`: base and size reach beyond 4294967294, the last user id"},
		{"base name of none", v + "repos: [{path: /}]\n", "f:2:9: missing `id` of repository \"/\": its base name does not have 1 to 128 characters"},
		{"one base name", v + "repos: [{path: /a/x}, {path: /b/x}]\n", "f:2:23: duplicate id \"x\", first at f:2:9: give \"/a/x\" or \"/b/x\" another `id`"},
		{"one id", v + "repos: [{path: /a, id: z}, {path: /b, id: z}]\n", "f:2:28: duplicate id \"z\", first at f:2:9: give \"/a\" or \"/b\" another `id`"},
		{"id of controls", v + "repos: [{path: /a, id: \"a\\nb\"}]\n", "f:2:24: `id`: must be a repository's id: a name of 1 to 128 characters, got \"a\\nb\""},
		{"id as a number", v + "repos: [{path: /a, id: 5}]\n", "f:2:24: `id`: must be a repository's id: a name of 1 to 128 characters, got 5"},
		{"workspace of another kind", v + "repos: [{path: /a, workspace: copy}]\n", "f:2:31: `workspace`: must be direct, readonly or overlay, got \"copy\""},
		{"workspace", v + "repos: [{path: /a, workspace: rw}]\n", "f:2:31: `workspace`: must be direct, readonly or overlay, got \"rw\""},
		{"protection", v + "repos: [{path: /a, protect: hook}]\n", "f:2:29: `protect`: must be none, hooks or all, got \"hook\""},
		{"runtime, near", v + "repos: [{path: /a, runtimes: [pyton]}]\n", "f:2:31: unknown runtime `pyton`: did you mean `python`?"},
		{"runtime, far", v + "runtime: {runtimes: [python, cobol]}\n", "f:2:30: unknown runtime `cobol`: must be one of " + strings.Join(job.AllRuntimes(), ", ")},
		{"runtime, twice", v + "runtime: {runtimes: [go, go]}\n", "f:2:26: `runtimes`: duplicate entry \"go\""},
		{"runtimes, none", v + "runtime: {runtimes: []}\n", "f:2:21: `runtimes` is empty: name at least one, or leave it out"},
		{"profile, near", v + "repos: [{path: /a, profile: strikt}]\n", "f:2:29: unknown profile `strikt`: did you mean `strict`?"},
		{"profile, far", v + "profiles: {b: {}, a: {}}\nrepos: [{path: /a, profile: mine}]\n", "f:3:29: unknown profile `mine`: must be one of a, b, default, strict"},
		{"profile that is there", v + "profiles: {strict: {}}\n", "f:2:12: `strict`: the profile always exists and cannot be changed: take another name"},
		{"profile, name", v + "profiles: {a b: {}}\n", "f:2:12: `a b`: must be a name of 1 to 64 letters, digits, dots, dashes and underscores, got \"a b\""},
		{"profile, twice", v + "profiles: {a: {}, a: {}}\n", "f:2:19: duplicate key `a`, first on line 2"},
		{"profile, nothing", v + "profiles: {a: }\n", "f:2:15: `a`: must be a mapping (`key: value`), got no value"},
		{"profile, system calls", v + "profiles: {a: {syscalls: stict}}\n", "f:2:26: unknown syscalls `stict`: did you mean `strict`?"},
		{"repository above its ceiling", v + "repos: [{path: /a, defaults: {pids: 9}, ceilings: {pids: 8}}]\n", "f:2:37: `pids`: 9 is above the ceiling of 8"},
		{"repository above the ceiling", v + "repos: [{path: /a, defaults: {pids: 9}}]\nceilings: {pids: 8}\n", "f:2:37: `pids`: 9 is above the ceiling of 8"},
		{"profile above the ceiling", v + "profiles: {a: {defaults: {pids: 9}}}\nceilings: {pids: 8}\n", "f:2:33: `pids`: 9 is above the ceiling of 8"},
		{"profile above its ceiling", v + "profiles: {a: {defaults: {pids: 9}, ceilings: {pids: 8}}}\n", "f:2:33: `pids`: 9 is above the ceiling of 8"},
		{"runtime above the ceiling", v + "runtime: {defaults: {pids: 9}}\nceilings: {pids: 8}\n", "f:2:28: `pids`: 9 is above the ceiling of 8"},
		{"runtime above its duration", v + "runtime: {defaults: {timeout: 12m}}\n", "f:2:31: `timeout`: 12m0s is above the ceiling of 10m0s"},
		{"env as a list", v + "runtime: {env: [PATH]}\n", "f:2:16: `env`: must be a mapping (`key: value`), got a list"},
		{"variable", v + "runtime: {env: {allow: [A-B]}}\n", "f:2:25: `allow`: must be a variable's name (letters, digits and underscores), got \"A-B\""},
		{"variable, a digit", v + "runtime: {env: {allow: [1A]}}\n", "f:2:25: `allow`: must be a variable's name (letters, digits and underscores), got \"1A\""},
		{"variable of an unknown runtime", v + "runtime: {runtime_env: {nodejs: {A: b}}}\n", "f:2:25: unknown runtime `nodejs`: did you mean `node`?"},
		{"variable of a runtime", v + "runtime: {runtime_env: {node: {A=: b}}}\n", "f:2:32: `A=`: must be a variable's name (letters, digits and underscores), got \"A=\""},
		{"network of calls", v + "runtime: {network: npm none}\n", "f:2:20: `network`: \"none\" cannot be combined with other words"},
		{"network of calls, empty", v + "runtime: {network: \" \"}\n", "f:2:20: `network`: must be presets and hosts such as npm example.org:443, separated by blanks, or none, got \" \""},
		{"network of calls, list", v + "runtime: {network: [npm]}\n", "f:2:20: `network`: must be presets and hosts such as npm example.org:443, separated by blanks, or none, got a list"},
		{"network of a tool", v + "runtime: {tool_network: {run: https://example.org}}\n", "f:2:31: `run`: \"https://example.org\": must be HOST or *.HOST, such as example.org: it must be a name alone, neither a URL nor an address; use a preset (" + strings.Join(network.PresetNames(), ", ") + "), HOST, HOST:PORT, or none"},
		{"network of no tool", v + "runtime: {tool_network: {a.b: npm}}\n", "f:2:26: `a.b`: must be a tool's name such as runtime_execute, without dots, got \"a.b\""},
		{"value", v + "runtime: {runtime_env: {node: {A: true}}}\n", "f:2:35: `A`: must be text, got true"},
		{"value, NUL", v + "runtime: {runtime_env: {node: {A: \"\\0\"}}}\n", "f:2:35: `A`: must be text without NUL of at most 32768 bytes"},
		{"executable", v + "runtime: {executables: [bin/sh]}\n", "f:2:25: `executables`: must be a program's name or its absolute path, got \"bin/sh\""},
		{"executable, not clean", v + "runtime: {executables: [/bin/../x]}\n", "f:2:25: `executables`: must be a program's name or its absolute path, got \"/bin/../x\""},
		{"executable, a directory", v + "runtime: {executables: [..]}\n", "f:2:25: `executables`: must be a program's name or its absolute path, got \"..\""},
		{"executables, none", v + "runtime: {executables: []}\n", "f:2:24: `executables` is empty: name at least one, or leave it out"},
		{"duration, long", v + "runtime: {max_duration: 11m}\n", "f:2:25: `max_duration`: must be between 100ms and 10m0s, got 11m"},
		{"duration, short", v + "runtime: {max_duration: 99ms}\n", "f:2:25: `max_duration`: must be between 100ms and 10m0s, got 99ms"},
		{"jobs", v + "runtime: {max_concurrent_jobs: 0}\n", "f:2:32: `max_concurrent_jobs`: must be a positive integer, got 0"},
		{"wait", v + "runtime: {queue_wait: -1s}\n", "f:2:23: `queue_wait`: must be a time such as 30s, or 0, got \"-1s\""},
		{"wait, long", v + "runtime: {queue_wait: 1h}\n", "f:2:23: `queue_wait`: must be between 0s and 10m0s, got 1h"},
		{"queue", v + "runtime: {queue_length: 10001}\n", "f:2:25: `queue_length`: must be between 1 and 10000, got 10001"},
		{"rules", v + "runtime: {rules: rules.star}\n", "f:2:18: `rules`: must be an absolute path, got \"rules.star\""},
		{"enabled", v + "runtime: {enabled: no}\n", "f:2:20: `enabled`: must be true or false, got \"no\""},
		{"a name of another's", v + "runtime: {maxDurationMs: 5}\n", "f:2:11: unknown key `maxDurationMs`: did you mean `max_duration`?"},
		{"keep", v + "output: {keep: 1}\n", "f:2:16: `keep`: must be between 64KiB and 512MiB, got 1"},
		{"redact", v + "output: {redact: }\n", "f:2:18: `redact`: must be true or false, got no value"},
		{"ttl", v + "artifacts: {ttl: 1s}\n", "f:2:18: `ttl`: must be between 1m0s and 8760h0m0s, got 1s"},
		{"artifacts, count", v + "artifacts: {max_count: 1.5}\n", "f:2:24: `max_count`: must be a positive integer, got 1.5"},
		{"artifacts, bytes", v + "artifacts: {max_bytes: 1k}\n", "f:2:24: `max_bytes`: must be between 1MiB and 1024TiB, got 1k"},
		{"artifacts, fsync", v + "artifacts: {fsync: eech}\n", "f:2:20: unknown fsync `eech`: did you mean `each`?"},
		{"audit, fsync", v + "audit: {fsync: true}\n", "f:2:16: `fsync`: must be one of group, each, got true"},
		{"audit, size", v + "audit: {max_size: 1}\n", "f:2:19: `max_size`: must be between 1MiB and 1TiB, got 1"},
		{"audit, keep", v + "audit: {keep: 0}\n", "f:2:15: `keep`: must be a positive integer, got 0"},
		{"jobs of a user", v + "max_jobs_per_user: 0\n", "f:2:20: `max_jobs_per_user`: must be a positive integer, got 0"},
		{"slots", v + "warm_slots: 257\n", "f:2:13: `warm_slots`: must be between 0 and 256, got 257"},
		{"jails", v + "max_jails: 70000\n", "f:2:12: `max_jails`: must be between 1 and 65536, got 70000"},
		{"principal without a name", v + "principals: [{token_sha256: \"" + hash1 + "\"}]\n", "f:2:14: missing `name` of a principal"},
		{"principal without a token", v + "principals: [{name: a}]\n", "f:2:14: missing `token_sha256` of a principal"},
		{"principal, name", v + "principals: [{name: a/b, token_sha256: \"" + hash1 + "\"}]\n", "f:2:21: `name`: must be a name of 1 to 64 letters, digits, dots, dashes and underscores, got \"a/b\""},
		{"principal, twice", v + "principals:\n- {name: a, token_sha256: \"" + hash1 + "\"}\n- {name: a, token_sha256: \"" + hash2 + "\"}\n", "f:4:3: duplicate principal \"a\", first at f:3:3"},
		{"principal, another's token", v + "principals:\n- {name: a, token_sha256: \"" + hash1 + "\"}\n- {name: b, token_sha256: \"" + strings.ToUpper(hash1) + "\"}\n", "f:4:3: principal \"b\" has the token of \"a\" at f:3:3"},
		{"a token itself", v + "principals: [{name: a, token_sha256: corral_SECRET}]\n", "f:2:38: `token_sha256`: must be the SHA-256 of a token, 64 hex digits in quotes: see corral config token"},
		{"principal, no repos", v + "principals: [{name: a, token_sha256: \"" + hash1 + "\", repos: []}]\n", "f:2:113: `repos` is empty: name at least one, or leave it out"},
		{"principal, tool", v + "principals: [{name: a, token_sha256: \"" + hash1 + "\", tools: [a.b]}]\n", "f:2:114: `tools`: must be a tool's name such as runtime_execute, without dots, got \"a.b\""},
		{"listen", v + "http: {listen: \":7070\"}\n", "f:2:16: `listen`: must be HOST:PORT such as 127.0.0.1:7070, got \":7070\""},
		{"listen, port", v + "http: {listen: \"localhost:http\"}\n", "f:2:16: `listen`: must be HOST:PORT such as 127.0.0.1:7070, got \"localhost:http\""},
		{"listen, number", v + "http: {listen: \"localhost:65536\"}\n", "f:2:16: `listen`: must be HOST:PORT such as 127.0.0.1:7070, got \"localhost:65536\""},
		{"host", v + "http: {allowed_hosts: [\"*\"]}\n", "f:2:24: `allowed_hosts`: must be a host's name such as build.example.org (no wildcards), got \"*\""},
		{"origin", v + "http: {allowed_origins: [\"*\"]}\n", "f:2:26: `allowed_origins`: must be an origin such as https://build.example.org (no wildcards), got \"*\""},
		{"origin, path", v + "http: {allowed_origins: [\"https://a/b\"]}\n", "f:2:26: `allowed_origins`: must be an origin such as https://build.example.org (no wildcards), got \"https://a/b\""},
		{"body", v + "http: {max_body: 1GiB}\n", "f:2:18: `max_body`: must be between 1KiB and 10MiB, got 1GiB"},
		{"exec listen", v + "exec_server: {listen: [\"ws://localhost\"]}\n", "f:2:24: `listen`: must be stdio, unix:///PATH or ws://HOST:PORT, got \"ws://localhost\""},
		{"exec listen, relative", v + "exec_server: {listen: [\"unix://x\"]}\n", "f:2:24: `listen`: must be stdio, unix:///PATH or ws://HOST:PORT, got \"unix://x\""},
		{"exec listen, twice", v + "exec_server: {listen: [stdio, \"stdio://\"]}\n", "f:2:31: `listen`: duplicate entry \"stdio://\""},
		{"exec peers", v + "exec_server: {peers: []}\n", "f:2:22: `peers` is empty: name at least one, or leave it out"},
		{"exec peer", v + "exec_server: {peers: [bob]}\n", "f:2:23: `peers`: unknown user \"bob\""},
		{"exec budget", v + "exec_server: {output_budget: 1MiB}\n", "f:2:30: `output_budget`: must be between 16MiB and 1TiB, got 1MiB"},
		{"exec profile", v + "exec_server: {full_access: tight}\n", "f:2:28: unknown profile `tight`: must be one of default, strict"},
		{"sandbox timeout", v + "sandbox: {timeout: 10ms}\n", "f:2:20: `timeout`: must be between 1s and 24h0m0s, got 10ms"},
		{"sandbox output", v + "sandbox: {output_limit: 5MiB}\n", "f:2:25: `output_limit`: must be between 1KiB and 4MiB, got 5MiB"},
		{"sandbox image", v + "sandbox: {image: ../x}\n", "f:2:18: `image`: must be the name of a root file system such as debian-12, got \"../x\""},
		{"sandbox repository", v + "sandbox: {repo: /}\n", "f:2:17: `repo`: must be a repository's id: a name of 1 to 128 characters, got \"/\""},
		{"ctx repository", v + "ctx: {repo: /}\n", "f:2:13: `repo`: must be a repository's id: a name of 1 to 128 characters, got \"/\""},
		{"ctx life", v + "ctx: {background_life: 10ms}\n", "f:2:24: `background_life`: must be between 1s and 168h0m0s, got 10ms"},
		{"ctx jobs", v + "ctx: {max_background: 0}\n", "f:2:23: `max_background`: must be a positive integer, got 0"},
		{"index time", v + "index: {ttl: 10ms}\n", "f:2:14: `ttl`: must be between 1s and 8784h0m0s, got 10ms"},
		{"index size", v + "index: {max_bytes: 1KiB}\n", "f:2:20: `max_bytes`: must be between 1MiB and 1TiB, got 1KiB"},
		{"starlark repository", v + "starlark: {repo: /}\n", "f:2:18: `repo`: must be a repository's id: a name of 1 to 128 characters, got \"/\""},
		{"starlark memory", v + "starlark: {memory: 8MiB}\n", "f:2:20: `memory`: must be between 48MiB and 16GiB, got 8MiB"},
		{"starlark time", v + "starlark: {max_wall: 2m}\n", "f:2:22: `max_wall`: must be between 1ms and 1m0s, got 2m"},
		{"traces", v + "telemetry: {traces: sterr}\n", "f:2:21: unknown traces `sterr`: did you mean `stderr`?"},
		{"traces, standard output", v + "telemetry: {traces: stdout}\n", "f:2:21: `traces`: standard output belongs to the protocol of a server: write stderr"},
		{"traces, no file", v + "telemetry: {traces: file}\n", "f:2:21: `traces`: file needs a `file` to write to"},
		{"traces, a relative file", v + "telemetry: {file: spans}\n", "f:2:19: `file`: must be an absolute path, got \"spans\""},
		{"collector", v + "telemetry: {endpoint: \"localhost:4318\"}\n", "f:2:23: `endpoint`: must be a URL such as http://localhost:4318 (headers are in headers_file)"},
		{"collector with a password", v + "telemetry: {endpoint: \"http://a:secret@b\"}\n", "f:2:23: `endpoint`: must be a URL such as http://localhost:4318 (headers are in headers_file)"},
		{"service", v + "telemetry: {service: 7}\n", "f:2:22: `service`: must be a name of at most 255 bytes, got 7"},
		{"network, a list", v + "network: [npm]\n", "f:2:10: `network`: must be a mapping (`key: value`), got a list"},
		{"network, a word", v + "network: {allow: [npm]}\n", "f:2:19: `allow`: must be a mapping (`key: value`), got \"npm\""},
		{"network, nothing of a repository", v + "repos: [{path: /a, network: }]\n", "f:2:29: `network`: must be a mapping (`key: value`), got no value"},
		{"network, an empty entry", v + "network: {allow: [{}]}\n", "f:2:19: `allow`: must have `host` or `preset`"},
		{"network, unknown key", v + "network: {alow: []}\n", "f:2:11: unknown key `alow`: did you mean `allow`?"},
		{"network, preset", v + "network: {allow: [{preset: nmp}]}\n", "f:2:28: unknown preset `nmp`: did you mean `npm`?"},
		{"network, preset as a host", v + "network: {allow: [{host: a.b}, {host: npm}]}\n", "f:2:32: `allow`: \"npm\" is a preset: write `preset: npm`"},
		{"network, preset and more", v + "network: {allow: [{preset: npm, ports: [1]}]}\n", "f:2:19: `allow`: preset \"npm\": it says host, ports and protocol itself; write another entry for them"},
		{"network, every host", v + "network: {allow: [{host: \"*\"}]}\n", "f:2:26: `host`: \"*\" would be every host: write HOST or *.HOST, such as *.example.org"},
		{"network, every host of a domain", v + "network: {deny: [\"*.org\"]}\n", "f:2:18: `deny`: \"*.org\" would be every host below \"org\": at least two labels must follow the wildcard, such as *.example.org"},
		{"network, URL", v + "repos: [{path: /a, network: {allow: [{host: \"https://a.b\"}]}}]\n", "f:2:45: `host`: \"https://a.b\": must be HOST or *.HOST, such as example.org: it must be a name alone, neither a URL nor an address"},
		{"network, host of another kind", v + "network: {allow: [{host: 1.5}]}\n", "f:2:26: `host`: must be HOST or *.HOST such as example.org, got 1.5"},
		{"network, a screen", v + "network: {deny: [\"a\\e[2J\"]}\n", "f:2:18: `deny`: \"a\\x1b[2J\": must be HOST or *.HOST, such as example.org: write it in lower case"},
		{"network, ports", v + "network: {allow: [{host: a.b, ports: 443}]}\n", "f:2:38: `ports`: must be a list, got 443"},
		{"network, no ports", v + "network: {allow: [{host: a.b, ports: []}]}\n", "f:2:38: `ports` is empty: name at least one, or leave it out"},
		{"network, port", v + "network: {allow: [{host: a.b, ports: [65536], protocol: tcp}]}\n", "f:2:39: `ports`: must be between 1 and 65535, got 65536"},
		{"network, ports of tcp", v + "network: {allow: [{host: a.b, protocol: tcp}]}\n", "f:2:19: `allow`: \"a.b\": `protocol: tcp` needs `ports`, such as [5432]"},
		{"network, protocol", v + "network: {allow: [{host: a.b, protocol: udp}]}\n", "f:2:41: unknown protocol `udp`: must be one of tls, http, tcp"},
		{"network, a private address", v + "network: {private: [10.1.2.3]}\n", "f:2:21: `private`: must be a network such as 10.1.0.0/16, got \"10.1.2.3\""},
		{"network, private bits", v + "network: {private: [10.1.2.3/16]}\n", "f:2:21: `private`: 10.1.2.3/16 has bits after the network: write 10.1.0.0/16"},
		{"network, private, twice", v + "network: {private: [10.1.0.0/16, 10.1.0.0/16]}\n", "f:2:34: `private`: duplicate entry \"10.1.0.0/16\""},
		{"network, bytes", v + "network: {bytes: {up: 1}}\n", "f:2:23: `up`: must be between 1KiB and 1024TiB, got 1"},
		{"network, many entries", v + "repos: [{path: /a, network: {deny: [" + hosts(network.MaxRules+1) + "]}}]\n", "f:2:29: `network`: deny has 257 entries, the maximum is 256"},
		{"network, large", v + "network: {deny: [" + hosts(network.MaxRules) + "]}\n", "f:2:10: `network`: the network rules have 64010 bytes, the maximum is 49152: use fewer or shorter entries"},
		{"session", v + "http: {session_idle: 1ms}\n", "f:2:22: `session_idle`: must be between 1s and 168h0m0s, got 1ms"},
		{"a screen", v + "\"a\\e[2J\": 1\n", "f:2:1: unknown key `a\\x1b[2J`: must be one of " + topKeys},
		{
			"several, in the order of the file", v + "max_jobs: 0\ndefaults:\n  memry: 1\n  pids: x\n",
			"f:2:11: `max_jobs`: must be a positive integer, got 0\n" +
				"f:4:3: unknown key `memry`: did you mean `memory`?\n" +
				"f:5:9: `pids`: must be a positive integer, got \"x\"",
		},
	}
	_, validate := readSchema(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if refused := validate(tt.file); (refused == nil) != slices.Contains(beyondSchema, tt.name) {
				t.Errorf("schema: %v", refused)
			}
			c, err := parseOne("f", []byte(tt.file), lookup)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if !reflect.DeepEqual(c, Config{}) {
				t.Errorf("something of it is used: %+v", c)
			}
		})
	}
}

func TestManyErrors(t *testing.T) {
	_, err := parseOne("f", []byte("version: 1\ntoolchains: ["+strings.Repeat("x,", 500)+"]\n"), lookup)
	var all strict.Errors
	if !errors.As(err, &all) || len(all) != 500 {
		t.Fatalf("%d errors of 500", len(all))
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "and 480 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}
