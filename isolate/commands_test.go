package isolate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// wait is what jobs of this file do last.
const wait = "echo up; read x"

// renames is a Python program that writes another command line over its own, as servers do to say what they are busy with.
const renames = sandboxtest.Python + `
start, end = map(int, open("/proc/self/stat").read().split(") ")[-1].split()[45:47])
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, b"busy: \x1b[31m<b>", 14)
print("up", flush=True); sys.stdin.read()
`

// moves is a Python program that has the kernel take 64 MiB of other memory for its command line (prctl(2), PR_SET_MM_MAP), which a process
// may do for itself. Of memory of a file, and shared memory is that, the kernel shows nothing: reading it could wait for a file system.
const moves = sandboxtest.Python + `
import struct
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
other = mmap.mmap(-1, 64 << 20, mmap.MAP_ANONYMOUS | mmap.MAP_%s)
other.write(b"elsewhere " * (6 << 20))
at = ctypes.addressof(ctypes.c_char.from_buffer(other))
s = [0] * 3 + open("/proc/self/stat").read().split(") ")[-1].split()
of = lambda n: int(s[n])
brk = libc.sbrk(0)
m = struct.pack("=12QII", of(26), of(27), of(45), of(46), of(47), brk, of(28), at, at + (60 << 20), of(50), of(51), 0, 0, 2**32 - 1)
if libc.prctl(35, 14, m, len(m), 0): print(os.strerror(ctypes.get_errno()))
print("up", flush=True); sys.stdin.read()
`

// TestCommands: a list has what the first process of a job runs, as the kernel shows it, for the owner of the job and root, if they ask for it.
func TestCommands(t *testing.T) {
	f := newFront(t)
	large := []string{"sh", "-c", wait}
	for range 20 {
		large = append(large, strings.Repeat("a", 100<<10))
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a program":           {[]string{"sh", "-c", wait}, "sh -c 'echo up; read x'"},
		"descendants":         {[]string{"sh", "-c", "(sleep 300 & (sleep 300 &)); " + wait}, "sh -c '(sleep 300 & (sleep 300 &)); echo up; read x'"},
		"another by execve":   {[]string{"sh", "-c", "exec sh -c '" + wait + "' two"}, "sh -c 'echo up; read x' two"},
		"control sequences":   {[]string{"sh", "-c", wait, "\x1b]0;evil\a\u202e\xff", "<img src=x>"}, "sh -c 'echo up; read x' '\x1b]0;evil\a\u202e\xff' '<img src=x>'"},
		"a secret":            {[]string{"sh", "-c", wait, "--password", "hunter2hunter2"}, "sh -c 'echo up; read x' --password [REDACTED:secret]"},
		"2 MiB":               {large, "sh -c 'echo up; read x' " + strings.Repeat("a", 2048-len("sh\x00-c\x00echo up; read x\x00")) + "…"},
		"stopped":             {[]string{"sh", "-c", "echo up; kill -STOP $$"}, "sh -c 'echo up; kill -STOP $$'"},
		"what the job writes": {[]string{"python3", "-c", renames}, "'busy: \x1b[31m<b>'"},
		"shared memory":       {[]string{"python3", "-c", fmt.Sprintf(moves, "SHARED")}, ""},
		"other memory":        {[]string{"python3", "-c", fmt.Sprintf(moves, "PRIVATE")}, "'" + strings.Repeat("elsewhere ", 205)[:2048] + "'…"},
	} {
		t.Run(name, func(t *testing.T) {
			sandboxtest.Require(t, sandboxtest.Program(tt.args[0]))
			l, err := f.Start(f.Spec(tt.args...))
			if err != nil {
				t.Fatal(err)
			}
			l.Until("up")
			if list, err := f.C.List(); err != nil || len(list) != 1 || list[0].Command != "" {
				t.Errorf("nobody asked: %+v, %v", list, err)
			}
			for who, peer := range map[string]host.Peer{"the owner": {UID: owner}, "root": {}, "another user": {UID: 1002}} {
				c := connect(t, f.s, peer)
				list, err := c.ListCommands()
				// What cannot be read in time is left out.
				for limit := time.Now().Add(sandboxtest.Slow(time.Minute)); err == nil && len(list) == 1 && list[0].Command == "" && tt.want != "" && time.Now().Before(limit); {
					list, err = c.ListCommands()
				}
				if err != nil {
					t.Fatal(err)
				}
				if who == "another user" && len(list) == 0 {
					continue
				}
				if len(list) != 1 || list[0].Command != tt.want {
					t.Errorf("%s: %d jobs, %+v\nwant %q", who, len(list), list, tt.want)
				}
			}
			if err := l.Kill(); err != nil {
				t.Error(err)
			}
			if _, err := l.End(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDenials: the last requests that were denied or refused are listed for their user and root, and for nobody else.
func TestDenials(t *testing.T) {
	f := newFront(t)
	for n := range maxRecent + 4 {
		claim := job.Claim{Tool: "run", Principal: "token:a", Repo: "app", Reason: fmt.Sprint("cwd: ", n, strings.Repeat("ü", wire.MaxReason))}
		if err := f.C.Denied(t.Context(), claim, job.Spec{}); err != nil {
			t.Fatal(err)
		}
	}
	spec := f.Spec("true")
	spec.Profile = "none such"
	if _, err := f.Try(spec); !refusedFor(err, "none such") {
		t.Fatal(err)
	}
	for who, tt := range map[string]struct {
		peer host.Peer
		want int
	}{"the owner": {host.Peer{UID: owner}, maxRecent}, "root": {host.Peer{}, maxRecent}, "another user": {host.Peer{UID: 1002}, 0}} {
		list, err := connect(t, f.s, tt.peer).Denials()
		if err != nil || len(list) != tt.want {
			t.Fatalf("%s: %d, %v", who, len(list), err)
		}
		if tt.want == 0 {
			continue
		}
		first, last := list[0], list[len(list)-1]
		if !strings.HasPrefix(first.Reason, "cwd: 5ü") || !strings.HasSuffix(first.Reason, "ü…") || first.Principal != "token:a" || first.Job != "" {
			t.Errorf("%s: first %+v", who, first)
		}
		if !strings.HasPrefix(last.Job, "job-") || last.Repo != f.Repo || !strings.Contains(last.Reason, "none such") || last.UID != owner {
			t.Errorf("%s: last %+v", who, last)
		}
	}
}
