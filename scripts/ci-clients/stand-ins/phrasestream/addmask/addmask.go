// Package addmask stands for the masks of the runner's command proxy-exec, which this build does not have: the masks of a
// job's log are made by the runner itself.
package addmask

import (
	"errors"
	"io"
)

type (
	Store interface {
		List() ([]string, error)
		Add(string) error
	}
	AddMask struct{}
)

// New returns an error. So no AddMask exists, and its methods are never called.
func New(Store, io.Writer, io.Writer) (*AddMask, error) {
	return nil, errors.New("proxy-exec is not part of this build")
}

func (*AddMask) Get(int) io.Writer { return io.Discard }
func (*AddMask) Close() error      { return nil }
