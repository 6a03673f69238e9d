package job

import (
	"context"
	"fmt"
	"time"
)

// An Image is a root file system that sessions can begin with, see SessionSpec.Image. The supervisor keeps it, as a file
// that is only ever mounted read-only; SessionSpec.Import makes one.
type Image struct {
	Name  string
	Bytes int64     // that it takes on the supervisor's disk
	Made  time.Time // when its import ended
}

// Images lists and removes root file systems. Those who may open a session see all of them; only root removes one.
type Images interface {
	// ListImages lists the images, by name. There is no error in having none.
	ListImages(ctx context.Context) ([]Image, error)
	// RemoveImage removes an image; sessions that began with it keep it until they end. One that is not there is a *Refusal
	// at step "session".
	RemoveImage(ctx context.Context, name string) error
}

// MaxImageName is the length of the longest name of an image, in bytes.
const MaxImageName = 64

// CheckImageName returns an error unless name may be an image's: [a-z0-9][a-z0-9._-]*, of at most MaxImageName bytes. It
// is also the name of a file then, and neither hidden nor "..".
func CheckImageName(name string) error {
	ok := name != "" && len(name) <= MaxImageName
	for n := range len(name) {
		c := name[n]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		ok = ok && (letter || n > 0 && (c == '.' || c == '_' || c == '-'))
	}
	if !ok {
		return fmt.Errorf("%.80q is no name of a root file system\n"+
			"hint: up to %d of a-z, 0-9, '.', '_' and '-', the first a letter or digit", name, MaxImageName)
	}
	return nil
}
