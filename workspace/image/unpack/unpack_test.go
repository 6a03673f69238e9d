package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

var made = time.Unix(1_600_000_000, 0)

func dir(name string, mode int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: made}
}

func file(name string, mode int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, ModTime: made, Size: int64(len(name))}
}

func symlink(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func link(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func other(kind byte, name string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: 0o644}
}

// archive returns an archive whose files contain their names.
func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// whole returns an archive with its end record.
func whole(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	return archive(t, append(headers, End(int64(len(headers))))...)
}

// listing describes the contents of a directory by name: type and mode, time, links, content.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String()
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			stat := info.Sys().(*syscall.Stat_t)
			line += fmt.Sprintf(" %d %d %q", stat.Nlink, info.ModTime().Unix(), content)
		default:
			line += fmt.Sprintf(" %d", info.ModTime().Unix())
		}
		all[path[len(dir)+1:]] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rich returns all types of entries, also in directories whose modes would prevent their creation.
func rich() []*tar.Header {
	deep := strings.Repeat("n", MaxName)
	return []*tar.Header{
		dir("sub", 0o555), file("sub/file", 0o644), dir("sub/closed", 0), file("sub/closed/in", 0o400),
		dir("tmp", 0o1777), dir("group", 0o2775), file("suid", 0o6755), file("none", 0),
		symlink("out", "../../../etc/passwd"), symlink("abs", "/etc/passwd"), symlink("self", "self"),
		link("again", "sub/file"), file("Case", 0o640), file("case", 0o604),
		file("caf\xe9", 0o600), file("new\nline", 0o600), file(".wh.name", 0o600),
		dir(deep, 0o700), file(deep+"/"+deep, 0o600),
	}
}

func richListing() map[string]string {
	deep := strings.Repeat("n", MaxName)
	return map[string]string{
		"sub": "dr-xr-xr-x 1600000000", "sub/closed": "d--------- 1600000000",
		"sub/file":      `-rw-r--r-- 2 1600000000 "sub/file"`,
		"again":         `-rw-r--r-- 2 1600000000 "sub/file"`,
		"sub/closed/in": `-r-------- 1 1600000000 "sub/closed/in"`,
		"tmp":           "dtrwxrwxrwx 1600000000", "group": "drwxrwxr-x 1600000000",
		"suid": `-rwxr-xr-x 1 1600000000 "suid"`, "none": `---------- 1 1600000000 "none"`,
		"out": "Lrwxrwxrwx -> ../../../etc/passwd", "abs": "Lrwxrwxrwx -> /etc/passwd", "self": "Lrwxrwxrwx -> self",
		"Case": `-rw-r----- 1 1600000000 "Case"`, "case": `-rw----r-- 1 1600000000 "case"`,
		"caf\xe9":         `-rw------- 1 1600000000 "caf\xe9"`,
		"new\nline":       `-rw------- 1 1600000000 "new\nline"`,
		".wh.name":        `-rw------- 1 1600000000 ".wh.name"`,
		deep:              "drwx------ 1600000000",
		deep + "/" + deep: `-rw------- 1 1600000000 "` + deep + "/" + deep + `"`,
	}
}

func TestUnpack(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // to read directories without permissions
	where := t.TempDir()
	totals, err := Unpack(bytes.NewReader(whole(t, rich()...)), where)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, listing(t, where), richListing())
	want := Totals{Entries: 19, Directories: 5, Files: 10, Symlinks: 3, Links: 1}
	for _, h := range rich() {
		want.Bytes += h.Size
	}
	if totals != want {
		t.Errorf("got  %s\nwant %s", totals, want)
	}
}

func sameTree(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%q: got %q, want %q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("unexpected %q: %q", name, got[name])
		}
	}
}

// TestUnprivileged checks that an unprivileged user can unpack modes that restrict itself.
func TestUnprivileged(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	where := sandboxtest.OpenDir(t)
	const uid = 54321
	if err := os.Chown(where, uid, uid); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := program(t, whole(t, rich()...), &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, where)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	line, isLine := strings.CutSuffix(stdout, "\n")
	if totals, err := ParseTotals(line); err != nil || !isLine || totals.Entries != 19 {
		t.Errorf("%q: %v", stdout, err)
	}
	sameTree(t, listing(t, where), richListing())
	info, err := os.Lstat(where + "/sub/file")
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
		t.Errorf("the file belongs to %d", got)
	}
}

func TestDirectory(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(full+"/here", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{full: `must be empty, but contains "here"`, full + "/here": "not a directory", full + "/none": "no such file"} {
		if _, err := Unpack(bytes.NewReader(whole(t)), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", dir, err, want)
		}
	}
}

// TestSparse checks that zeros take no space.
func TestSparse(t *testing.T) {
	const size = 64 << 20
	where := t.TempDir()
	totals, err := Unpack(zeros(t, size), where)
	if err != nil || totals.Bytes != size {
		t.Fatalf("%v, %v", totals, err)
	}
	info, err := os.Stat(where + "/big")
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != size || used > 1<<20 {
		t.Errorf("%d bytes that use %d on disk", info.Size(), used)
	}
	content, err := os.ReadFile(where + "/big")
	if err != nil || content[size/2] != 'x' || bytes.Count(content, []byte{0}) != size-1 {
		t.Errorf("the content differs: %v", err)
	}
}

// zeros returns an archive with a file of zeros and one x in the middle.
func zeros(t *testing.T, size int) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	go func() {
		a := tar.NewWriter(w)
		content := make([]byte, size)
		content[size/2] = 'x'
		err := a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: int64(size), Mode: 0o644})
		if err == nil {
			_, err = a.Write(content)
		}
		if err == nil {
			err = a.WriteHeader(End(1))
		}
		w.CloseWithError(errors.Join(err, a.Close()))
	}()
	return r
}

// TestTimes checks that times that a file system cannot store are not an error.
func TestTimes(t *testing.T) {
	where := t.TempDir()
	headers := []*tar.Header{file("old", 0o644), file("late", 0o644), file("half", 0o644)}
	headers[0].ModTime, headers[1].ModTime = time.Unix(-5, 0), time.Unix(1<<40, 0)
	headers[2].ModTime, headers[2].Format = time.Unix(5, 500_000_000), tar.FormatPAX
	if _, err := Unpack(bytes.NewReader(whole(t, headers...)), where); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"old": 0, "late": 0, "half": 5e9} {
		info, err := os.Stat(filepath.Join(where, name))
		if err != nil || info.ModTime().UnixNano() != want {
			t.Errorf("%s: %v, %v", name, info.ModTime(), err)
		}
	}
}

func TestTotals(t *testing.T) {
	totals := Totals{1, 2, 3, 4, 5, 6}
	line := totals.String()
	if got, err := ParseTotals(line); err != nil || got != totals {
		t.Errorf("ParseTotals(%q) = %v, %v", line, got, err)
	}
	for _, bad := range []string{
		"", line + "\n", line + " ", " " + line, line + " more=1", strings.Replace(line, "1", "01", 1),
		strings.Replace(line, "6", "-6", 1), strings.Replace(line, "6", "66666666666666666666", 1), strings.ToUpper(line),
	} {
		if got, err := ParseTotals(bad); err == nil {
			t.Errorf("ParseTotals(%q) = %v, want an error", bad, got)
		}
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("UNPACK_TEST_DIR"); dir != "" {
		os.Exit(played(dir, os.Getenv("UNPACK_TEST_TMPFS")))
	}
	os.Exit(m.Run())
}

// played acts as the program, on a tmpfs with the given options if there are any.
func played(dir, tmpfs string) int {
	if tmpfs != "" {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", dir, "tmpfs", 0, tmpfs)); err != nil {
			println(err.Error())
			return 99
		}
	}
	if err := Run([]string{dir}, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// program runs this test binary as the program.
func program(t *testing.T, archive []byte, attr *syscall.SysProcAttr, dir string, env ...string) (code int, stdout, stderr string) {
	t.Helper()
	exe, err := os.Open("/proc/self/exe") // its path may not be accessible to another user
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{exe}
	// Without GOCOVERDIR, a binary for coverage writes a warning to standard error.
	cmd.Env = append(env, "UNPACK_TEST_DIR="+dir, "GOCOVERDIR="+os.Getenv("GOCOVERDIR"))
	cmd.SysProcAttr = attr
	cmd.Stdin = bytes.NewReader(archive)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestFull checks the errors on a full file system, as layers have a fixed size.
func TestFull(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	large := []*tar.Header{file("first", 0o644)}
	for n := range 30 {
		large = append(large, dir(fmt.Sprintf("%d", n), 0o755), file(fmt.Sprintf("%d/%s", n, strings.Repeat("x", 200)), 0o644))
	}
	for options, want := range map[string]string{
		"size=64k,nr_inodes=1000": "no room for more bytes, after ",
		"size=1m,nr_inodes=12":    "no room for more files, after ",
	} {
		code, stdout, stderr := program(t, whole(t, large...), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, t.TempDir(), "UNPACK_TEST_TMPFS="+options)
		if code != 1 || stdout != "" || !strings.HasPrefix(stderr, want) || !strings.Contains(stderr, "\nhint: --disk") {
			t.Errorf("%s: exit %d, %q, %q", options, code, stdout, stderr)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"a", "b"}, {t.TempDir()}} {
		var stdout strings.Builder
		if err := Run(args, strings.NewReader(""), &stdout); err == nil || stdout.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, stdout.String())
		}
	}
}
