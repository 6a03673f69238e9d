package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/client"
)

// A Need is a reason for which a front-end that a user called through sudo acts as root. There are no others than those of Needs.
type Need struct {
	Name string // what is done as root
	Why  string // why the user's own rights do not suffice, and why the user gets nothing more by it
}

// The needs of front-ends.
var (
	Connecting = Need{"connect to a supervisor", "its socket is for root and group corral, and it sees who connects. The socket is found " +
		"with the user's rights"}
	Piping      = Need{"make the pipes of a job", "the supervisor accepts those of its client, which is root"}
	Supervising = Need{"start corrald for one command", "it builds jails. It gets names alone, and opens directories with the user's rights"}
	Configuring = Need{"open and change the operator's configuration", "it is root's. A file at another path is the operator's if root " +
		"alone can change where the path leads; any other is the user's, and opened with the user's rights"}
	Reading = Need{"open the supervisor's state: audit log, packages, authorities, stored output", "it is root's. As for configurations, a " +
		"directory at another path is the user's unless it is root's alone"}
)

// Needs returns all needs, in the order in which a command has them.
func Needs() []*Need {
	return []*Need{&Configuring, &Connecting, &Supervising, &Piping, &Reading}
}

// Root reports whether this process can act as root: root started it, perhaps for a user who called sudo, and it has not given that up
// for good.
func Root() bool { return os.Getuid() == 0 || os.Geteuid() == 0 }

// Lower gives up root for the user who called sudo, with that user's groups, except for what needs it (see Need). Programs call it
// first, before they read anything that the user has chosen. Root without sudo, and any other user, stay what they are. A process
// that shall not get root back calls Become.
func Lower() error {
	if !Root() {
		return nil
	}
	whose, err := Account("")
	if err != nil {
		return err
	}
	if whose.UID == 0 && !lowered() {
		return nil
	}
	if err := raise(); err != nil || whose.UID == 0 {
		return err
	}
	return lower(whose)
}

// lowered reports whether this process has given up root by Lower, and can get it back.
func lowered() bool { return os.Getuid() == 0 && os.Geteuid() != 0 }

// Do runs f as root if Lower has given that up, and gives it up again unless f has done so for good. Otherwise it only runs f.
func (n *Need) Do(f func() error) (err error) {
	if !lowered() {
		return f()
	}
	whose, err := effective()
	if err == nil {
		err = raise()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	defer func() {
		if os.Getuid() == 0 {
			err = errors.Join(err, lower(whose))
		}
	}()
	return f()
}

// At is Do if path is root's alone, as a file or directory that the command line names can be: nobody else can change where it leads.
// Otherwise it runs f with the rights of the user who called sudo, to whom what f reads, or a part of it in an error, is shown. A
// permission error then says so. Path need not exist.
func (n *Need) At(path string, f func() error) error {
	if !lowered() {
		return f()
	}
	alone := false
	err := n.Do(func() error {
		alone = rootsAlone(path)
		return nil
	})
	if err != nil {
		return err
	}
	if alone {
		return n.Do(f)
	}
	return Hint(f())
}

// rootsAlone reports whether root alone can change where path leads. It looks into no directory of another user.
func rootsAlone(path string) bool {
	path, err := directory.Absolute(path)
	if err != nil {
		return false
	}
	dir, err := directory.OpenRoots(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // a file, or something that is to be made
		dir, err = directory.OpenRoots(filepath.Dir(path))
	}
	if err != nil {
		return false
	}
	dir.Close()
	return true
}

// Hint adds to a permission error whose rights were missing.
func Hint(err error) error {
	if !lowered() || !errors.Is(err, os.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w\nhint: it is opened as user %d, who called sudo, and must be readable for that user", err, os.Geteuid())
}

// Dial connects to the supervisor that listens on socket, "" for the default one. If a user called sudo, the socket is looked up with
// that user's rights, so that root follows no path of the user's.
func Dial(socket string) (*client.Client, error) {
	if !lowered() {
		return client.Dial(socket)
	}
	return dial(socket, func(connect func() error) error { return connect() })
}

// DialAs is Dial for root: to the supervisor, the connection is one of who (SO_PEERCRED has the effective ids, unix(7)), although that user
// alone might not reach the socket. Other users connect as themselves.
func DialAs(who Identity, socket string) (*client.Client, error) {
	if !Root() {
		return client.Dial(socket)
	}
	return dial(socket, who.onThread)
}

// dial connects by a descriptor of the socket, as the user that as makes the thread.
func dial(socket string, as func(connect func() error) error) (c *client.Client, err error) {
	if socket == "" {
		socket = client.DefaultSocket
	}
	f, err := os.OpenFile(socket, unix.O_PATH, 0)
	if err != nil {
		return nil, client.Unavailable(socket, err)
	}
	defer f.Close()
	err = Connecting.Do(func() error {
		return as(func() (err error) {
			c, err = client.DialAt(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))), socket)
			return err
		})
	})
	return c, err
}

// onThread runs f with i as the effective user and group of the calling thread alone, which keeps root's rights on files (setfsuid(2)),
// and root as its real user.
func (i Identity) onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := i.setThread()
		if err == nil {
			err = f()
		}
		if back := (Identity{}).setThread(); back != nil {
			done <- errors.Join(err, back)
			return // still locked: the thread ends with this goroutine
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// setThread sets the effective user and group of the calling thread alone.
func (i Identity) setThread() error {
	const same = ^uintptr(0)
	ids := []struct {
		call uintptr
		id   int
	}{{unix.SYS_SETRESGID, i.GID}, {unix.SYS_SETRESUID, i.UID}}
	if i.UID == 0 {
		slices.Reverse(ids) // only root may change the group
	}
	for _, set := range ids {
		if _, _, errno := unix.RawSyscall(set.call, same, uintptr(set.id), same); errno != 0 {
			return fmt.Errorf("the ids of a connection to the supervisor: %w", errno)
		}
	}
	if got, err := unix.SetfsuidRetUid(0); err != nil || got != i.UID {
		return fmt.Errorf("setfsuid: the thread has user %d, not %d: %w", got, i.UID, err)
	}
	return nil
}

// effective returns the account whose rights this process has now.
func effective() (directory.Account, error) {
	a := directory.Account{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	groups, err := os.Getgroups()
	for _, g := range groups {
		a.Groups = append(a.Groups, uint32(g))
	}
	return a, err
}

// lower gives the process the rights of an account, and keeps root as its real and saved user.
func lower(a directory.Account) error {
	groups := make([]int, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = int(g)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(-1, int(a.GID), -1); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(-1, int(a.UID), 0); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return nil
}

// raise makes root the process's effective user and group again, in no other group. It may have been executed by a process that has
// lowered its rights: its saved user is not root then.
func raise() error {
	if err := syscall.Setresuid(-1, 0, 0); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	if os.Getegid() == 0 {
		return nil
	}
	if err := syscall.Setresgid(-1, 0, 0); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	return nil
}
