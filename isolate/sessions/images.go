package sessions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/job"
)

// images are the root file systems with which sessions can start: layers that were kept under a name. One that is in
// use is mounted once, read-only.
type images struct {
	store *layer.Store
	dir   string // directory of mount points
	path  string // directory of the store

	mu   fault.Mutex
	open map[string]*image // guarded by mu
}

type image struct {
	of    *images
	name  string
	layer *layer.Layer
	users int // guarded by of.mu
}

func noImage(name string) error {
	return &job.Refusal{
		Step: "session", Message: fmt.Sprintf("no root file system %q", name),
		Hint: "list them with `corral rootfs list`, or create one with `corral rootfs import`",
	}
}

// use mounts an image unless it is mounted. The caller must call leave.
func (m *images) use(name string) (*image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.open[name]; i != nil {
		i.users++
		return i, nil
	}
	path := filepath.Join(m.dir, sessionID())
	if err := host.MakeDir(path); err != nil {
		return nil, err
	}
	l, err := m.store.OpenReadOnly(name, path)
	if err != nil {
		_ = os.Remove(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, noImage(name)
		}
		return nil, refuseLayer(err)
	}
	i := &image{of: m, name: name, layer: l, users: 1}
	m.open[name] = i
	return i, nil
}

// leave ends one use. The last one unmounts the image.
func (i *image) leave() {
	i.of.mu.Lock()
	defer i.of.mu.Unlock()
	if i.users--; i.users > 0 {
		return
	}
	if i.of.open[i.name] == i {
		delete(i.of.open, i.name)
	}
	path := i.layer.Path()
	_ = i.layer.Close()
	_ = os.Remove(path)
}

// list lists the images, sorted by name.
func (m *images) list() ([]job.Image, error) {
	entries, err := os.ReadDir(m.path)
	if err != nil {
		return nil, err
	}
	var list []job.Image
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(m.path, e.Name()), &st) != nil || job.CheckImageName(e.Name()) != nil {
			continue
		}
		list = append(list, job.Image{Name: e.Name(), Bytes: st.Blocks * 512, Made: time.Unix(st.Mtim.Unix())})
	}
	return list, nil
}

func (m *images) has(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(m.path, name), &st) == nil
}

func onlyRoot(what string) error {
	return &job.Refusal{Step: "session", Message: "only root can " + what, Hint: "run it with sudo"}
}

// remove removes an image. Sessions that started with it keep it; later sessions that request the name get whichever
// image has it then.
func (m *images) remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, name)
	return m.store.Remove(name)
}

// refuseLayer turns errors of package layer that a client should see into refusals: a host without space or without a
// required feature is the operator's matter.
func refuseLayer(err error) error {
	forClient := false
	for _, known := range []error{layer.ErrNoRoom, layer.ErrHost, layer.ErrInUse, layer.ErrDamaged} {
		forClient = forClient || errors.Is(err, known)
	}
	if !forClient {
		return err
	}
	message, hint := host.SplitHint(err)
	r := &job.Refusal{Step: "session", Message: message, Hint: hint}
	if errors.Is(err, layer.ErrNoRoom) {
		r.Errno = int(unix.ENOSPC) // a front-end can end another session
	}
	return r
}
