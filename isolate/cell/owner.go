package cell

import (
	"corral/isolate/layer"
	"corral/job"
)

// A Session is a session to which a jail belongs, as far as the jail depends on it.
type Session struct {
	Owner
	ID        string
	Workspace job.Workspace
	Root      bool   // its jobs have a root of their own
	Share     bool   // its jobs share home directory and /tmp
	Import    bool   // its jobs fill a root file system
	Image     string // the root file system it starts with, or ""
	Resumed   bool   // its layer was kept
	Network          // of its jobs, together if they share a network namespace
}

// sharesNetwork reports whether the session's jobs share a network namespace: those that share their files.
func (ss *Session) sharesNetwork() bool { return (ss.Share || ss.Root) && !ss.Import }

// A Owner manages the layer of a session.
type Owner interface {
	// OpenLayer creates or reopens the layer, and mounts it at path.
	OpenLayer(path string) (*layer.Layer, error)
	// CloseLayer unmounts the layer, and keeps or removes it. The jail has ended.
	CloseLayer()
	// UseImage returns the mount point of the root file system Image. The caller must call leave.
	UseImage() (path string, leave func(), err error)
	// Forget is called when nothing of the jail is left.
	Forget()
}
