package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"corral/job"
)

// A job goes from the command that read its command line to the process that keeps it in the background as the content of a file in
// memory, so that neither its arguments nor its environment are seen in the list of processes. Bytes that are not UTF-8 arrive as they are.

// maxHanded is the maximum size of an encoded job: that of arguments and environment together (execve(2)), as base64, with room.
const maxHanded = 16 << 20

// A handed is a job in JSON, whose strings would lose bytes that are not UTF-8.
type handed struct {
	Spec      job.Spec
	Dir, Repo []byte
	Args, Env [][]byte
}

// HandOver returns a file from which TakeOver reads the job. The caller closes it.
func HandOver(spec job.Spec) (*os.File, error) {
	m := handed{Dir: []byte(spec.Dir), Repo: []byte(spec.Repo), Args: bytesOf(spec.Args), Env: bytesOf(spec.Env)}
	spec.Dir, spec.Repo, spec.Args, spec.Env = "", "", nil, nil
	m.Spec = spec
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxHanded {
		err = fmt.Errorf("the program's arguments and environment are %d bytes, the maximum is %d", len(text), maxHanded)
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "job")
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// TakeOver reads a job that HandOver wrote.
func TakeOver(r io.Reader) (spec job.Spec, err error) {
	var m handed
	if err := json.NewDecoder(io.LimitReader(r, maxHanded)).Decode(&m); err != nil {
		return spec, fmt.Errorf("no job was passed: %w", err)
	}
	spec = m.Spec
	spec.Dir, spec.Repo, spec.Args, spec.Env = string(m.Dir), string(m.Repo), stringsOf(m.Args), stringsOf(m.Env)
	if len(spec.Args) == 0 {
		return spec, errors.New("no job was passed: it has no program")
	}
	return spec, nil
}

func bytesOf(list []string) (out [][]byte) {
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}

func stringsOf(list [][]byte) (out []string) {
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}
