package wire

import (
	"time"

	"corral/job"
)

// MaxLabel is the maximum length of names that users give to sessions and root file systems, in bytes.
const MaxLabel = 64

// Flags of an Open. FlagReadOnly, FlagOverlay, FlagRepo and FlagCommon are those of a Run.
const (
	OpenRoot = flagsEnd << iota // a whole root file system on the layer
	OpenLasting
	// OpenCheck asks whether the supervisor serves the session's repository to the client, without creating a session.
	// The reply is a Closed, or a Result with the refusal.
	OpenCheck
	OpenShare // the jobs of a session without OpenRoot share the home directory, /tmp and a loopback interface
	openEnd
)

// Open requests a session. Its descriptors are the repository's, with FlagRepo, and Common's, with FlagCommon. The reply
// is a Session, or a Result with the refusal. The fields are those of job.SessionSpec; Idle is in nanoseconds.
type Open struct {
	Flags               uint32
	Disk, Inodes, Idle  int64
	Repo, Common        string // maximum MaxPath; see Run
	Profile             string // maximum MaxName
	Name, Image, Import string // maximum MaxLabel
	Network             string // maximum MaxNetwork; see Run
}

func (o *Open) numbers() []*int64 { return []*int64{&o.Disk, &o.Inodes, &o.Idle} }
func (o *Open) labels() []*string { return []*string{&o.Name, &o.Image, &o.Import} }

// Append encodes o as a message with tag.
func (o *Open) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpOpen, tag)
	e.u32(o.Flags)
	for _, n := range o.numbers() {
		e.i64(*n)
	}
	e.text(o.Repo, MaxPath)
	e.text(o.Common, MaxPath)
	e.text(o.Profile, MaxName)
	for _, s := range o.labels() {
		e.text(*s, MaxLabel)
	}
	e.text(o.Network, MaxNetwork)
	return e.b
}

// ReadOpen decodes the body of an Open.
func ReadOpen(body []byte) (Open, error) {
	d := decoder{b: body}
	o := Open{Flags: d.u32()}
	for _, n := range o.numbers() {
		*n = d.i64()
	}
	o.Repo, o.Common, o.Profile = d.text(MaxPath), d.text(MaxPath), d.text(MaxName)
	for _, s := range o.labels() {
		*s = d.text(MaxLabel)
	}
	o.Network = d.text(MaxNetwork)
	const known = FlagReadOnly | FlagOverlay | FlagRepo | FlagCommon | OpenRoot | OpenLasting | OpenCheck | OpenShare
	d.bad = d.bad || o.Flags >= openEnd || o.Flags&^uint32(known) != 0 ||
		o.Flags&FlagCommon != 0 && o.Common == ""
	return o, d.done()
}

// Descriptors returns the number of descriptors that must come with o.
func (o *Open) Descriptors() int {
	n := 0
	for _, flag := range []uint32{FlagRepo, FlagCommon} {
		if o.Flags&flag != 0 {
			n++
		}
	}
	return n
}

// CloseSession requests to end a session or to remove a kept layer. The reply is a Closed, or a Result with the refusal.
type CloseSession struct {
	Keep bool
	ID   string // maximum MaxName
}

// Append encodes m as a message with tag.
func (m CloseSession) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpClose, tag)
	e.u8(bit(m.Keep, 1))
	e.text(m.ID, MaxName)
	return e.b
}

// ReadCloseSession decodes the body of a CloseSession.
func ReadCloseSession(body []byte) (CloseSession, error) {
	d := decoder{b: body}
	keep := d.u8()
	m := CloseSession{Keep: keep == 1, ID: d.text(MaxName)}
	d.bad = d.bad || keep > 1
	return m, d.done()
}

// Closed is the reply that a session has ended, and whether its layer was kept.
type Closed struct{ Kept bool }

// Append encodes m as the answer to tag.
func (m Closed) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpClosed, tag)
	e.u8(bit(m.Kept, 1))
	return e.b
}

// ReadClosed decodes the body of a Closed.
func ReadClosed(body []byte) (Closed, error) {
	d := decoder{b: body}
	kept := d.u8()
	d.bad = d.bad || kept > 1
	return Closed{kept == 1}, d.done()
}

// Session flags.
const (
	sessionRoot = 1 << iota
	sessionKept
	sessionEnd
)

// AppendSession encodes a session as an answer to tag.
func AppendSession(s *job.Session, tag uint32) []byte {
	e := encoder{}
	e.header(OpSession, tag)
	e.u8(bit(s.Root, sessionRoot) | bit(s.Kept, sessionKept))
	e.u8(uint8(s.Workspace))
	e.u32(s.UID)
	for _, n := range []int64{s.Opened.UnixNano(), s.Used.UnixNano(), int64(s.Jobs), s.Disk, s.DiskUsed} {
		e.i64(n)
	}
	e.text(s.ID, MaxName)
	e.text(s.Name, MaxLabel)
	e.text(s.Image, MaxLabel)
	e.text(s.Repo, MaxPath)
	return e.b
}

// ReadSession decodes the body of a session.
func ReadSession(body []byte) (job.Session, error) {
	d := decoder{b: body}
	flags, workspace := d.u8(), d.u8()
	s := job.Session{
		Root: flags&sessionRoot != 0, Kept: flags&sessionKept != 0, Workspace: job.Workspace(workspace), UID: d.u32(),
		Opened: time.Unix(0, d.i64()), Used: time.Unix(0, d.i64()), Jobs: int(d.i64()), Disk: d.i64(), DiskUsed: d.i64(),
	}
	s.ID, s.Name, s.Image, s.Repo = d.text(MaxName), d.text(MaxLabel), d.text(MaxLabel), d.text(MaxPath)
	d.bad = d.bad || flags >= sessionEnd || s.Workspace > job.Overlay
	return s, d.done()
}

// AppendImage encodes a root file system as part of the answer to tag.
func AppendImage(i *job.Image, tag uint32) []byte {
	e := encoder{}
	e.header(OpImage, tag)
	e.i64(i.Bytes)
	e.i64(i.Made.UnixNano())
	e.text(i.Name, MaxLabel)
	return e.b
}

// ReadImage decodes the body of an image.
func ReadImage(body []byte) (job.Image, error) {
	d := decoder{b: body}
	i := job.Image{Bytes: d.i64(), Made: time.Unix(0, d.i64()), Name: d.text(MaxLabel)}
	return i, d.done()
}

// RemoveImage requests to remove a root file system. The reply is a Closed, or a Result with the refusal.
type RemoveImage struct{ Name string } // maximum MaxLabel

// Append encodes m as a message with tag.
func (m RemoveImage) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpRemoveImage, tag)
	e.text(m.Name, MaxLabel)
	return e.b
}

// ReadRemoveImage decodes the body of a RemoveImage.
func ReadRemoveImage(body []byte) (RemoveImage, error) {
	d := decoder{b: body}
	m := RemoveImage{d.text(MaxLabel)}
	return m, d.done()
}
