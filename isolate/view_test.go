package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/job"
	"corral/rootfs"
)

// TestJobView: what a job sees of the machine, and what it does not.
func TestJobView(t *testing.T) {
	f := sharedFront(t)
	secret := filepath.Join(filepath.Dir(f.Repo), "beside")
	put(t, secret, "secret", 0o644, owner)
	const endOfRow = "---- end of row ----"
	type row struct{ name, script, want string }
	asks := func(f *front, script string) string {
		d := f.Run(f.Spec("sh", "-c", "export HOME=/home/job; "+script))
		if d.Err != "" {
			t.Log(d.Err)
		}
		return d.Out
	}
	compare := func(r row, got string) {
		if strings.TrimSpace(got) != strings.TrimSpace(r.want) {
			t.Errorf("%s: %q, want %q", r.name, got, r.want)
		}
	}
	var script strings.Builder
	rows := []row{
		{"directories of the root", "ls -A / | grep -vE '^(lib.*|bin|sbin|opt)$' | tr '\\n' ' '", topDirs(f.Repo)},
		{"secrets of the host", "ls -d /etc/shadow /etc/gshadow /etc/machine-id /etc/sudoers /etc/ssh /etc/hostid 2>/dev/null | wc -l", "0"},
		{"root's home", "ls -A /root 2>/dev/null | wc -l", "0"},
		{"homes", "ls /home 2>&1 | grep -c Permission; stat -c %U /home/job", "1\njob"},
		{"own home", "cd; pwd; touch x && ls", "/home/job\nx"},
		{"logs and state", "ls -A /var | grep -vx -e lib -e lock | tr '\\n' ' '", "boot-id door empty layer lower masked root run tmp "},
		{"services", "ls -A /run /sys /var/empty | grep -vx lock | grep -c ^[a-z]", "0"},
		{"scratch directories", `for d in /run/lock /var/lib/php/sessions; do [ ! -L $d ] || { echo x >$d/x && rm $d/x; } || echo fails; done; [ ! -e /var/lib ] || ls /var/lib/ /var/lib/php | grep -vx -e php -e sessions -e '.*:' -e ''`, ""},
		{"beside the repository", "ls -A " + filepath.Dir(f.Repo), "repo"},
		{"temporary files", "ls -A /tmp /var/tmp /dev/shm | grep -v ^/ | grep -v ^Test | grep -c .", "0"},
		{"users", "cut -d: -f1 /etc/passwd | sort | tr '\\n' ' '", "job nobody root "},
		{"groups", "cut -d: -f1 /etc/group | sort | tr '\\n' ' '", "job nogroup root tty "},
		{"own name", "id -un; id -gn; id -G | wc -w; python3 -c 'import os; print(os.getgroups() == [os.getgid()])'", "job\njob\n1\nTrue"},
		{"message queues", fmt.Sprintf(`perl -e 'my ($n, $a) = ("q", pack("q8", 0, 4, 64)); print syscall(%d, $n, 0102, 0600, $a) >= 0 ? "open" : $!; print -e "/dev/mqueue/q" ? " listed" : " hidden"'`, unix.SYS_MQ_OPEN), "open listed"},
		{"groups of the network", `perl -MSocket=:all -e 'socket(my $s, AF_INET, SOCK_DGRAM, 0); setsockopt($s, IPPROTO_IP, IP_ADD_MEMBERSHIP, pack_ip_mreq(inet_aton("224.0.0.251"))) or print $!; bind($s, sockaddr_in(5353, INADDR_ANY)); send($s, "x", 0, sockaddr_in(5353, inet_aton("224.0.0.251"))) or print $!; recv($s, my $b, 9, MSG_DONTWAIT); recv($s, my $c, 9, MSG_DONTWAIT); print "$b$c"; socket(my $t, AF_INET6, SOCK_DGRAM, 0); print setsockopt($t, IPPROTO_IPV6, 20, pack("a16I", inet_pton(AF_INET6, "ff02::fb"), 0)) ? " joined" : $!'`, "x joined"},
		{"16 terminals", `perl -MFcntl -e 'my @f; for (1..16) { sysopen(my $f, "/dev/ptmx", O_RDWR) and push @f, $f } print scalar @f'`, "16"},
		{"names of the resolver", "grep ^hosts /etc/nsswitch.conf", "hosts: files [NOTFOUND=return] dns"},
		{"own account", `cut -d: -f3,4,6 /etc/passwd | grep -c "^$(id -u):$(id -g):/home/job$"; grep -c ":$(id -g):" /etc/group; echo x 2>/dev/null >>/etc/passwd || echo kept`, "1\n1\nkept"},
		{
			"account files have names", `for f in /etc/passwd /etc/group; do readlink /proc/self/fd/3 3<$f; echo 2>/dev/null >/home/.${f#/etc/} || stat -c %h $f; done`,
			"/etc/passwd\n1\n/etc/group\n1",
		},
		{"host name", "uname -n; cat /etc/hostname /proc/sys/kernel/hostname /proc/sys/kernel/domainname", "jail\njail\njail\n"},
		{"resolver", "wc -c </etc/resolv.conf", "0"},
		{"names that do not exist for good", `perl -MSocket=:all -e 'my ($e) = getaddrinfo("a.example", 80); print $e == EAI_NONAME ? "none" : $e'`, "none"},
		{"control groups", "grep -v ':/$' /proc/self/cgroup | wc -l", "0"},
		{"network", "tail -n +3 /proc/net/dev | tr -d ' ' | cut -d: -f1; tail -n +2 /proc/net/route | cut -f 1,2", "lo\nlo\t000000E0"},
		{"terminals", "ls /dev/pts; ls -l /dev/ptmx | grep -o 'pts/ptmx'", "ptmx\npts/ptmx"},
		{"devices", "find /dev -type c ! -path '/dev/pts/*' | sort | tr '\\n' ' '", "/dev/full /dev/null /dev/random /dev/tty /dev/urandom /dev/zero "},
		{"capabilities", "grep -E '^Cap' /proc/self/status | grep -v '0000000000000000' | wc -l", "0"},
		{"System V IPC", "cat /proc/sysvipc/* | grep -vc key", "0"},
		{"set-id files do nothing", "grep -c 'NoNewPrivs:.1' /proc/self/status", "1"},
		{"filter", "grep -E '^Seccomp:' /proc/self/status | tr -d '\\t'", "Seccomp:2"},
		{"own ids", "cd /tmp; touch own; install -o $(id -u) -g $(id -g) own other && chown $(id -u):$(id -g) own && setpriv --reuid $(id -u) --regid $(id -g) --keep-groups echo set", "set"},
		{"ids of others", "cd /tmp; touch theirs; for id in 0 5 1002; do chown $id theirs; chgrp $id theirs; done 2>&1 | grep -c 'not permitted'", "6"},
		{"own priority", "ionice -c 3 nice chrt --other 0 echo set", "set"},
		{"own programs", "test -x /bin/sh && test -x /usr/bin/env && echo yes", "yes"},
		{"loopback", "grep -q 127.0.0.1 /proc/net/fib_trie && echo up", "up"},
	}
	for _, r := range rows { // in one job: a jail takes longer than all of them
		fmt.Fprintf(&script, "( %s ); printf '\\n%s\\n'\n", r.script, endOfRow)
	}
	said := strings.Split(asks(f, script.String()), endOfRow)
	if len(said) != len(rows)+1 {
		t.Fatalf("%d answers to %d rows: %q", len(said), len(rows), said)
	}
	for n, r := range rows {
		compare(r, said[n])
	}
	for _, r := range []row{ // about the job's first process
		{"processes", "set -- /proc/[0-9]*; echo $#", "2"}, // process 1 and the shell
		{"process 1", "cat /proc/1/environ 2>/dev/null | wc -c; tr '\\0' ' ' </proc/1/cmdline; ls /proc/1/fd /proc/1/cwd/ 2>&1 | grep -c denied", "0\njob 2"},
		{"descriptors", "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 "}, // 3 is ls's own
		{"signals", "grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status | grep -v 0000000000000000 | grep -vc Cgt", "0"},
		{"session", "read -r pid _ _ _ _ sid tty _ </proc/$$/stat; [ $pid = $sid ] && echo leader, terminal $tty", "leader, terminal 0"},
	} {
		compare(r, asks(f, r.script))
	}
}

// topDirs returns the directories in a jail's root, without those that only some hosts have.
func topDirs(repo string) string {
	list := []string{"dev", "etc", "home", "proc", "run", "sys", "tmp", "usr", "var"}
	if top := strings.Split(repo, "/")[1]; !slices.Contains(list, top) {
		list = append(list, top)
	}
	slices.Sort(list)
	return strings.Join(list, " ") + " "
}

// TestPrivateDirs: packages job and rootfs list the same directories in the same order, in which the stub reports the full ones.
func TestPrivateDirs(t *testing.T) {
	var list []string
	for _, d := range rootfs.Private {
		list = append(list, d.Path)
	}
	if got := job.PrivateDirs(); !slices.Equal(got, list) {
		t.Errorf("package job has %q, package rootfs %q", got, list)
	}
}

// TestMounts: the mount table shows no path of the host but the repository's own, and only private directories and
// the repository are writable.
func TestMounts(t *testing.T) {
	f := sharedFront(t)
	writable := []string{"/dev/mqueue", "/dev/pts", "/proc"}
	for _, d := range rootfs.Private {
		writable = append(writable, d.Path)
	}
	writable = append(writable, f.Repo)
	var got []string
	for line := range strings.Lines(f.Sh("cat /proc/self/mountinfo")) {
		fields := strings.Fields(line)
		root, point, options := fields[3], fields[4], strings.Split(fields[5], ",")
		if strings.Contains(root, host.RunDir) || strings.Contains(root, "corral") && !strings.HasPrefix(f.Repo, root) {
			t.Errorf("the host shows: %s", line)
		}
		if !slices.Contains(options, "nosuid") || !slices.Contains(options, "nodev") && !strings.HasPrefix(point, "/dev") {
			t.Errorf("set-id programs or devices: %s", line)
		}
		if options[0] != "ro" {
			got = append(got, point)
		}
	}
	slices.Sort(writable)
	slices.Sort(got)
	got = slices.Compact(got) // the jail's own /proc is mounted under the job's
	if !slices.Equal(got, writable) {
		t.Errorf("writable %q, want %q", got, writable)
	}
}

// TestMaskedProc: masked paths that exist on this kernel can be neither read nor listed.
func TestMaskedProc(t *testing.T) {
	f := sharedFront(t)
	script := ""
	for _, m := range rootfs.MaskedProc {
		if exists(m.Path) {
			script += "cat " + m.Path + " " + m.Path + "/* >/dev/null 2>&1 && echo " + m.Path + "\n"
		}
	}
	if got := f.Sh(script + "true"); got != "" {
		t.Errorf("readable: %s", got)
	}
}

// TestBootID: the jobs of a jail see one boot ID, which is neither another jail's nor the kernel's.
func TestBootID(t *testing.T) {
	const file = "/proc/sys/kernel/random/boot_id"
	kernel, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a, b := sharedFront(t), newFront(t)
	first, again, other := a.Sh("cat "+file), a.Sh("cat "+file), b.Sh("cat "+file)
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("%q is no random UUID", first)
	}
	if first != again || first == other || slices.Contains([]string{first, other}, strings.TrimSpace(string(kernel))) {
		t.Errorf("jobs of one jail see %q and %q, one of another %q, the kernel has %q", first, again, other, kernel)
	}
}

// TestToolchain: a configured directory is shown read-only, also inside a private directory of the job.
func TestToolchain(t *testing.T) {
	dir := t.TempDir() + "/tools"
	mkdir(t, dir, 0)
	put(t, dir+"/tool", "#!/bin/sh\necho tool\n", 0o755, 0)
	f := newFront(t, func(c *Config) { c.Toolchains = []string{dir} })
	if got := f.Sh(dir + "/tool; touch " + dir + "/x 2>&1 | grep -o 'Read-only.*'"); got != "tool\nRead-only file system" {
		t.Errorf("%q", got)
	}
	if got := f.Sh("ls -A " + filepath.Dir(dir)); got != "tools" {
		t.Errorf("beside it: %q", got)
	}
}
