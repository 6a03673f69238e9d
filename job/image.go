package job

import (
	"context"
	"fmt"
	"time"
)

// An Image is a root file system that sessions can start from, see SessionSpec.Image. The supervisor keeps it as a
// file that is only ever mounted read-only; SessionSpec.Import creates one.
type Image struct {
	Name  string
	Bytes int64     // space used on the supervisor's disk
	Made  time.Time // when its import ended
}

// Images lists and removes root file systems. Users who may open a session see all of them; only root can remove one.
type Images interface {
	// ListImages returns the images sorted by name. Having none is not an error.
	ListImages(ctx context.Context) ([]Image, error)
	// RemoveImage removes an image; sessions that started from it keep it until they end. If there is no such image
	// the error is a *Refusal at step "session".
	RemoveImage(ctx context.Context, name string) error
}

// MaxImageName is the maximum length of an image's name, in bytes.
const MaxImageName = 64

// CheckImageName returns an error unless name is a valid image name: [a-z0-9][a-z0-9._-]*, at most MaxImageName
// bytes. A valid name can be used as a file name and is neither hidden nor "..".
func CheckImageName(name string) error {
	ok := name != "" && len(name) <= MaxImageName
	for n := range len(name) {
		c := name[n]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		ok = ok && (letter || n > 0 && (c == '.' || c == '_' || c == '-'))
	}
	if !ok {
		return fmt.Errorf("%.80q is not a valid name of a root file system\n"+
			"hint: use at most %d of a-z, 0-9, '.', '_' and '-', starting with a letter or digit", name, MaxImageName)
	}
	return nil
}
