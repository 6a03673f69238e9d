package wire

import "corral/job"

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

func (*Open) op() Op { return OpOpen }

func (o *Open) fields(c *coder) {
	c.u32(&o.Flags)
	c.i64(&o.Disk, &o.Inodes, &o.Idle)
	c.text(MaxPath, &o.Repo, &o.Common)
	c.text(MaxName, &o.Profile)
	c.text(MaxLabel, &o.Name, &o.Image, &o.Import)
	c.text(MaxNetwork, &o.Network)
	const known = FlagReadOnly | FlagOverlay | FlagRepo | FlagCommon | OpenRoot | OpenLasting | OpenCheck | OpenShare
	c.check(o.Flags < openEnd && o.Flags&^uint32(known) == 0 && (o.Flags&FlagCommon == 0 || o.Common != ""))
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

func (*CloseSession) op() Op { return OpClose }

func (m *CloseSession) fields(c *coder) {
	c.flags(&m.Keep)
	c.text(MaxName, &m.ID)
}

// Closed is the reply that a session has ended, and whether its layer was kept.
type Closed struct{ Kept bool }

func (*Closed) op() Op { return OpClosed }

func (m *Closed) fields(c *coder) {
	c.flags(&m.Kept)
}

// session is the message that a job.Session is encoded as.
type session job.Session

func (*session) op() Op { return OpSession }

func (s *session) fields(c *coder) {
	c.flags(&s.Root, &s.Kept)
	c.u8((*uint8)(&s.Workspace))
	c.u32(&s.UID)
	c.time(&s.Opened)
	c.time(&s.Used)
	jobs := int64(s.Jobs)
	if c.i64(&jobs, &s.Disk, &s.DiskUsed); c.reading {
		s.Jobs = int(jobs)
	}
	c.text(MaxName, &s.ID)
	c.text(MaxLabel, &s.Name, &s.Image)
	c.text(MaxPath, &s.Repo)
	c.check(s.Workspace <= job.Overlay)
}

// Session returns the message that a session is encoded as.
func Session(s *job.Session) Message { return (*session)(s) }

// ReadSession decodes the body of a session.
func ReadSession(body []byte) (job.Session, error) {
	s, err := Decode[session](body)
	return job.Session(s), err
}

// image is the message that a job.Image is encoded as.
type image job.Image

func (*image) op() Op { return OpImage }

func (i *image) fields(c *coder) {
	c.i64(&i.Bytes)
	c.time(&i.Made)
	c.text(MaxLabel, &i.Name)
}

// Image returns the message that a root file system is encoded as.
func Image(i *job.Image) Message { return (*image)(i) }

// ReadImage decodes the body of an image.
func ReadImage(body []byte) (job.Image, error) {
	i, err := Decode[image](body)
	return job.Image(i), err
}

// RemoveImage requests to remove a root file system. The reply is a Closed, or a Result with the refusal.
type RemoveImage struct{ Name string } // maximum MaxLabel

func (*RemoveImage) op() Op { return OpRemoveImage }

func (m *RemoveImage) fields(c *coder) {
	c.text(MaxLabel, &m.Name)
}
