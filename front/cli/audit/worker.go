package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/front/forward"
	"corral/internal/config"
	"corral/internal/log"
	"corral/internal/version"
	"corral/isolate/client/embed"
	"corral/store/audit/reader"
)

// worker is the child process of corral audit forward. As root it reads the configuration, which is root's, and the files that this
// names; then it drops root, and reads the audit log and talks to the receiver.
func worker(args []string) (int, error) {
	f := flag.NewFlagSet("audit", flag.ContinueOnError)
	path := f.String("config", "", "")
	if err := f.Parse(args); err != nil {
		return cli.Failure, errors.Join(err, drop())
	}
	o, err := configured(*path)
	if dropped := drop(); dropped != nil {
		return cli.Failure, dropped
	}
	if err != nil {
		return cli.Failure, err
	}
	for _, fd := range []int{openerFD, positionFD, statusFD} {
		unix.CloseOnExec(fd)
	}
	ctx, stop := cli.UntilTerminated()
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asker := &asker{socket: os.NewFile(openerFD, "opener"), gone: cancel}
	o.Open, o.Position, o.Status = asker.open, os.NewFile(positionFD, "position"), os.NewFile(statusFD, "status")
	o.Log, o.Version = log.Stderr(slog.LevelInfo, false), version.Version
	err = forward.Run(ctx, o)
	return exitCode(err), err
}

// configured returns what the supervisor's configuration says about the receiver.
func configured(path string) (o forward.Options, err error) {
	source := config.Source{Path: path, Options: config.LoadOptions{Trusted: true}}
	if path == "" {
		source.Path, source.Optional = config.DefaultPath, true
	}
	if source.Optional {
		err = embed.Configuring.Do(func() (err error) { o, err = optionsOf(source); return err })
	} else {
		err = embed.Configuring.At(path, func() (err error) { o, err = optionsOf(source); return err })
	}
	return o, err
}

// optionsOf reads a configuration file and the files that it names.
func optionsOf(source config.Source) (forward.Options, error) {
	c, err := config.LoadFront(source)
	if err != nil {
		return forward.Options{}, err
	}
	e := c.AuditExport
	if e.To == "" {
		return forward.Options{}, fmt.Errorf("no receiver: set `audit_export: {to: …}` in %s, such as tls://logs.example.org:6514", source.Path)
	}
	host, err := os.Hostname()
	if err != nil {
		return forward.Options{}, err
	}
	_, _ = time.Now().Zone() // reads the time zone, for the log
	o := forward.Options{To: e.To, Host: host}
	if err := (forward.Files{CA: e.CA, Certificate: e.Certificate, Key: e.Key, Headers: e.HeadersFile}).Read(&o); err != nil {
		return forward.Options{}, fmt.Errorf("audit_export: %w", err)
	}
	return o, nil
}

// accountOf returns the ids of a user.
func accountOf(name string) (embed.Identity, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return embed.Identity{}, false
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 31)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 31)
	return embed.Identity{UID: int(uid), GID: int(gid)}, uidErr == nil && gidErr == nil && uid > 0 && gid > 0
}

// An asker has an opener open files.
type asker struct {
	socket *os.File
	gone   func() // called when there is no opener any more
}

// open does what reader.OpenFile does.
func (a *asker) open(seq uint64) (reader.File, error) {
	f, err := a.ask(seq)
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		a.gone()
	}
	return f, err
}

func (a *asker) ask(seq uint64) (reader.File, error) {
	if _, err := a.socket.Write(binary.LittleEndian.AppendUint64(nil, seq)); err != nil {
		return reader.File{}, fmt.Errorf("the process that opens files has ended: %s", err.Error())
	}
	answer, rights := make([]byte, answerSize), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(a.socket.Fd()), answer, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != answerSize {
		return reader.File{}, fmt.Errorf("the process that opens files has ended: %w", io.ErrUnexpectedEOF)
	}
	if answer[0] != answerFile {
		return reader.File{}, unix.Errno(binary.LittleEndian.Uint64(answer[1:]))
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oobn])
	if err != nil || len(messages) != 1 {
		return reader.File{}, errors.New("the process that opens files has sent none")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return reader.File{}, errors.New("the process that opens files has sent none")
	}
	return reader.File{
		File:  os.NewFile(uintptr(fds[0]), "audit log"),
		First: binary.LittleEndian.Uint64(answer[1:]),
		Later: binary.LittleEndian.Uint64(answer[9:]),
	}, nil
}
