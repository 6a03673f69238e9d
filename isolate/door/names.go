package door

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/isolate/wire"
)

// nameFiles are the host's files about names, which corral-egress reads when it starts. It has no access to files later, so it is
// passed descriptors when they change. They are root's; the supervisor parses neither.
var nameFiles = [...]string{"/etc/resolv.conf", "/etc/hosts"}

// namesInterval is how often the files are looked at while a process runs: there are many ways in which they change (a link that
// leads elsewhere, a renamed file, another mount), and stat(2) sees all of them.
const namesInterval = time.Second / 2

// A version tells one content of a file from another. The zero version is that of a file that does not exist, or that is not one
// that everybody may read: corral-egress could not have opened it either.
type version struct {
	device, inode    uint64
	size             int64
	modified, change unix.Timespec
}

func versionOf(st *unix.Stat_t) version {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o004 == 0 {
		return version{}
	}
	return version{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// lookAtNames returns the present versions of nameFiles.
func lookAtNames() (now [len(nameFiles)]version) {
	for n, path := range nameFiles {
		now[n] = lookAt(path)
	}
	return now
}

func lookAt(path string) version {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return version{}
	}
	return versionOf(&st)
}

// followNames tells the process when nameFiles are others than those it has, until stop is called.
func (e *egress) followNames(has [len(nameFiles)]version) (stop func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(namesInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if now := lookAtNames(); now != has {
				has = now // what changes from now on is seen next time
				e.sendNames()
			}
		}
	}()
	return func() {
		close(ended)
		<-gone
	}
}

// sendNames passes the process the present files.
func (e *egress) sendNames() {
	m := control.Names{Devices: devices()}
	var files []*os.File
	defer func() { wire.CloseAll(files) }()
	for n, has := range []*bool{&m.ResolvConf, &m.Hosts} {
		if f := openNames(nameFiles[n]); f != nil {
			*has, files = true, append(files, f)
		}
	}
	message, err := control.Encode(m)
	if err != nil {
		e.doors.report("changed names are not sent", err)
		return
	}
	e.doors.Log.Info(Program+" reads the host's name servers and names again", "uid", e.payer)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil && e.now.conn.Send(message, files...) != nil {
		e.now.conn.Shutdown() // the next process reads them itself
	}
}

// openNames opens a file that everybody may read, or returns nil.
func openNames(path string) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || versionOf(&st) == (version{}) {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), path)
}

// devices returns the indexes of the host's network devices, by name.
func devices() map[string]int {
	list, _ := net.Interfaces() // without them, only an address with a device is not reached
	all := map[string]int{}
	for _, device := range list[:min(len(list), control.MaxDevices)] {
		all[device.Name] = device.Index
	}
	return all
}
