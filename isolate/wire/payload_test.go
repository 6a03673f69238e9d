package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestSealCopy: a copy of a file has its content and mode, is sealed, and is not made of a file that ends too early.
func TestSealCopy(t *testing.T) {
	const size = 3 << 20
	content := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, ok := range map[int64]bool{0: true, 1: true, size: true, size + 1: false} {
		from, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := SealCopy("copy", from, want, 0o111)
		from.Close()
		if !ok {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes of %d: %v", want, size, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		got := make([]byte, size+1)
		n, _ := f.ReadAt(got, 0)
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&0o7777 != 0o555 || !bytes.Equal(got[:n], content[:want]) {
			t.Errorf("%d bytes: mode %o, %d bytes read, %v", want, st.Mode, n, err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("%d bytes: written to: %v", want, err)
		}
		if err := f.Truncate(want + 1); !errors.Is(err, unix.EPERM) {
			t.Errorf("%d bytes: made longer: %v", want, err)
		}
		f.Close()
	}
}

// TestPayload: a payload has the layout that the stub reads, and is sealed.
func TestPayload(t *testing.T) {
	y, zeros := strings.Repeat("y", 1<<20), strings.Repeat("\x00", 1<<20)
	for _, tt := range []struct {
		args, env []string
		files     []job.File
		want      []byte
	}{
		{[]string{"true"}, nil, nil, payload(1, 0, 0, "true\x00")},
		{[]string{""}, []string{""}, nil, payload(1, 1, 0, "\x00\x00")},
		{
			[]string{"sh", "", "-c", "", ""},
			[]string{"A=", "", "B=ü\n\xff"},
			nil,
			payload(5, 3, 0, "sh\x00\x00-c\x00\x00\x00A=\x00\x00B=ü\n\xff\x00"),
		},
		{[]string{"x", y}, nil, nil, payload(2, 0, 0, "x\x00"+y+"\x00")},
		{
			[]string{"x"},
			nil,
			[]job.File{{Path: "/tmp/ü", Content: "a\x00\xff\n"}, {Path: "/", Content: ""}},
			payload(1, 0, 2, "x\x00/tmp/ü\x00\x04\x00\x00\x00a\x00\xff\n\x00/\x00\x00\x00\x00\x00\x00"),
		},
		{
			[]string{"x"},
			[]string{"A=b"},
			[]job.File{{Path: "/a", Content: zeros}},
			payload(1, 1, 1, "x\x00A=b\x00/a\x00\x00\x00\x10\x00"+zeros+"\x00"),
		},
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
		if !bytes.Equal(content, tt.want) || !Sealed(f) {
			t.Errorf("%.50q, %.50q, %d files: got %.100q, want %.100q, sealed %v", tt.args, tt.env, len(tt.files), content, tt.want, Sealed(f))
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

// payload returns a payload with these counts; rest is the part after its header.
func payload(argc, envc, files uint32, rest string) []byte {
	var b []byte
	for _, n := range []uint32{payloadMagic, argc, envc, files} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return append(b, rest...)
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
