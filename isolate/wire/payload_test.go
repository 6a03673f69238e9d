package wire

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestPayload: a payload round-trips and is sealed.
func TestPayload(t *testing.T) {
	for _, tt := range []struct {
		args, env []string
		files     []job.File
	}{
		{[]string{"true"}, nil, nil},
		{[]string{""}, []string{""}, nil},
		{[]string{"sh", "", "-c", "", ""}, []string{"A=", "", "B=ü\n\xff"}, nil},
		{[]string{"x", strings.Repeat("y", 1<<20)}, nil, nil},
		{[]string{"x"}, nil, []job.File{{Path: "/tmp/ü", Content: "a\x00\xff\n"}, {Path: "/", Content: ""}}},
		{[]string{"x"}, []string{"A=b"}, []job.File{{Path: "/a", Content: strings.Repeat("\x00", 1<<20)}}},
	} {
		f, err := NewPayload(tt.args, tt.env, tt.files...)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		content, err := io.ReadAll(io.NewSectionReader(f, 0, MaxPayload))
		if err != nil {
			t.Fatal(err)
		}
		args, env, files, err := ReadPayload(content)
		if err != nil || !slices.Equal(args, tt.args) || !slices.Equal(env, tt.env) || !slices.Equal(files, tt.files) || !Sealed(f) {
			t.Errorf("%.50q, %.50q: %.50q, %.50q, %d files, %v, sealed %v", tt.args, tt.env, args, env, len(files), err, Sealed(f))
		}
	}
}

// TestPayloadRefused: NewPayload refuses strings, paths and sizes that the job's process could not use.
func TestPayloadRefused(t *testing.T) {
	for _, tt := range []struct {
		name      string
		args, env []string
		file      job.File
		want      string
	}{
		{"no program", nil, []string{"A=b"}, job.File{Path: "/x"}, "no program"},
		{"NUL in an argument", []string{"a\x00b"}, nil, job.File{Path: "/x"}, ErrNul.Error()},
		{"NUL in the environment", []string{"a"}, []string{"A=\x00"}, job.File{Path: "/x"}, ErrNul.Error()},
		{"NUL in a path", []string{"a"}, nil, job.File{Path: "/x\x00"}, ErrNul.Error()},
		{"a relative path", []string{"a"}, nil, job.File{Path: "x/y"}, `"x/y" must be absolute`},
		{"no path", []string{"a"}, nil, job.File{Content: "x"}, `"" must be absolute`},
		{"too large", []string{strings.Repeat("x", MaxPayload)}, nil, job.File{Path: "/x"}, "maximum 4194304"},
		{"too large a file", []string{"a"}, nil, job.File{Path: "/x", Content: strings.Repeat("x", MaxPayload)}, "maximum 4194304"},
	} {
		f, err := NewPayload(tt.args, tt.env, tt.file)
		if f != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", tt.name, f, err)
		}
	}
}

// TestPayloadMalformed: ReadPayload refuses a payload that does not match its layout.
func TestPayloadMalformed(t *testing.T) {
	for name, content := range map[string][]byte{
		"nothing":                  nil,
		"half a header":            payload(1, 0, 0, "")[:8],
		"other magic":              append([]byte("nope"), payload(1, 0, 0, "a\x00")[4:]...),
		"a string short":           payload(2, 0, 0, "a\x00"),
		"a string more":            payload(1, 0, 0, "a\x00b\x00"),
		"no NUL at the end":        payload(1, 0, 0, "a"),
		"sum overflows":            payload(1<<31, 1<<31, 0, "\x00"),
		"a file short":             payload(1, 0, 1, "a\x00"),
		"a file more":              payload(1, 0, 1, "a\x00/b\x00\x00\x00\x00\x00\x00/c\x00\x00\x00\x00\x00\x00"),
		"a file without a length":  payload(1, 0, 1, "a\x00/b\x00"),
		"a relative path":          payload(1, 0, 1, "a\x00b\x00\x00\x00\x00\x00\x00"),
		"content beyond the end":   payload(1, 0, 1, "a\x00/b\x00\x02\x00\x00\x00x\x00"),
		"a length of all ones":     payload(1, 0, 1, "a\x00/b\x00\xff\xff\xff\xffx\x00"),
		"no NUL after the content": payload(1, 0, 1, "a\x00/b\x00\x01\x00\x00\x00xy"),
		"files without end":        payload(1, 0, 1<<32-1, "a\x00"),
	} {
		if _, _, _, err := ReadPayload(content); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSealed: no process can change a payload any more, and no other file counts as sealed.
func TestSealed(t *testing.T) {
	f, err := NewPayload([]string{"true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	for name, err := range map[string]error{
		"write":    second(unix.Pwrite(fd, []byte("x"), 0)),
		"grow":     unix.Ftruncate(fd, 1<<16),
		"shrink":   unix.Ftruncate(fd, 0),
		"add seal": second(unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)),
		"map":      second(unix.Mmap(fd, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED)),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", name, err)
		}
	}
	for name, other := range others(t) {
		if Sealed(other) {
			t.Errorf("%s is sealed", name)
		}
		other.Close()
	}
}

// others returns files that are not sealed payloads, each for one reason.
func others(t *testing.T) map[string]*os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	write.Close()
	half := memfd(t, 64)
	if _, err := unix.FcntlInt(half.Fd(), unix.F_ADD_SEALS, payloadSeals&^unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	large, small := memfd(t, MaxPayload+1), memfd(t, 15)
	for _, f := range []*os.File{large, small} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, payloadSeals); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]*os.File{
		"a file": file, "a pipe": read, "an open memfd": memfd(t, 64), "a memfd that can be written": half,
		"a large memfd": large, "a memfd without a header": small,
	}
}

func memfd(t *testing.T, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "test")
}
