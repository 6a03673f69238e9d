package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
)

// lockTime is how long an apply waits for the lock on the repository.
var lockTime = 10 * time.Second

// lock takes the lock that keeps other applies from the repository. It is released when the directory is closed. Any
// program that can read the directory can take this lock, a job, too, hence the bound.
func lock(ctx context.Context, d *dir) error {
	switch err := flock.Wait(ctx, d.fd, unix.LOCK_EX, time.Now().Add(lockTime)); {
	case errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil:
		return fmt.Errorf("another program has held a lock on the repository's directory for %v: "+
			"another apply, or a program or job that called flock(2)\nhint: corral ps lists jobs, and lslocks(8) locks; wait for the "+
			"other apply, or end that job, then apply again", lockTime)
	case err != nil:
		return fmt.Errorf("lock the repository: %w", err)
	}
	return nil
}
