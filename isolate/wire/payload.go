package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"corral/job"
)

const (
	payloadMagic = 0x4c524f43
	payloadSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	// MaxPayload is the maximum size of arguments, environment and files together, in bytes; the kernel's own limit for
	// the first two is a quarter of the stack's size, 2 MiB.
	MaxPayload = 4 << 20
)

// ErrNul is returned for a string with a NUL byte, which cannot be passed to a program.
var ErrNul = errors.New("an argument, the environment or the path of a file contains a NUL byte")

// NewPayload writes args, env and files into a sealed memfd, in the layout that the job's process reads (struct payload
// of the stub). The caller closes it. Errors: no args, ErrNul, a file whose path is not absolute, more than MaxPayload
// bytes, or an error of the kernel.
func NewPayload(args, env []string, files ...job.File) (*os.File, error) {
	if len(args) == 0 {
		return nil, errors.New("no program given")
	}
	var b []byte
	for _, n := range []uint32{payloadMagic, uint32(len(args)), uint32(len(env)), uint32(len(files))} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	for _, s := range append(args[:len(args):len(args)], env...) {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, ErrNul
		}
		b = append(append(b, s...), 0)
	}
	for _, f := range files {
		if strings.IndexByte(f.Path, 0) >= 0 {
			return nil, ErrNul
		}
		if !strings.HasPrefix(f.Path, "/") {
			return nil, fmt.Errorf("path of file %q must be absolute", f.Path)
		}
		b = append(append(b, f.Path...), 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Content)))
		b = append(append(b, f.Content...), 0)
	}
	if len(b) > MaxPayload {
		return nil, fmt.Errorf("arguments, environment and files are %d bytes, maximum %d", len(b), MaxPayload)
	}
	return Seal("payload", b, 0)
}

// Seal returns a memfd with content that no process can change any more. Its mode is 0444 plus perm. The caller closes
// it.
func Seal(name string, content []byte, perm uint32) (*os.File, error) {
	return seal(name, perm, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// SealCopy is Seal with the first size bytes of a file, from where it is read next. A file that ends before is an error. The kernel
// copies, which takes a third of the time of reading a program and writing it.
func SealCopy(name string, from *os.File, size int64, perm uint32) (*os.File, error) {
	return seal(name, perm, func(f *os.File) error {
		for size > 0 {
			n, err := unix.Sendfile(int(f.Fd()), int(from.Fd()), nil, int(size))
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return fmt.Errorf("sendfile: %w", err)
			case n == 0:
				return io.ErrUnexpectedEOF
			}
			size -= int64(max(n, 0))
		}
		return nil
	})
}

// seal returns a memfd whose content fill has written.
func seal(name string, perm uint32, fill func(*os.File) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := fill(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: %w", err)
	}
	if err := unix.Fchmod(fd, 0o444|perm); err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: fchmod: %w", err)
	}
	if err := addSeals(fd); err != nil {
		f.Close()
		return nil, fmt.Errorf("memfd: seal: %w", err)
	}
	return f, nil
}

// addSeals seals a memfd. The kernel returns EBUSY, after waiting for some time, if another user of a page seems to
// exist: on a loaded machine that may be a processor's list of new pages (memfd_wait_for_pins in mm/memfd.c).
func addSeals(fd int) error {
	const tries = 20
	var err error
	for range tries {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, payloadSeals)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return err
}

// Sealed reports whether f is a memfd that no process can change any more, of at most MaxPayload bytes.
func Sealed(f *os.File) bool {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&payloadSeals != payloadSeals {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Size <= MaxPayload && st.Size >= 16
}
