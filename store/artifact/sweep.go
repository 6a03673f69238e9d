package artifact

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/flock"
	"corral/store/at"
)

// sweepEvery is the interval between sweeps.
const sweepEvery = 5 * time.Minute

func (d *diskDir) sweepAtIntervals(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	d.Sweep(ctx)
	for {
		select {
		case <-ctx.Done():
			d.clear()
			return
		case <-ticker.C:
			d.Sweep(ctx)
		case <-d.taken:
			d.clear()
		}
	}
}

// clear removes the files of unlinked artifacts.
func (d *diskDir) clear() {
	all, err := at.Names(d.fd, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if strings.HasPrefix(name, gonePrefix) {
			_ = removeDir(d.fd, name)
		}
	}
}

// Sweep removes expired artifacts, what killed processes left, and artifacts beyond the quotas, and corrects the
// recorded usage. What cannot be removed is left to the next sweep.
func (d *diskDir) Sweep(ctx context.Context) {
	all, err := at.Names(d.fd, -1)
	if err != nil {
		return
	}
	for _, name := range all {
		if ctx.Err() != nil {
			return
		}
		switch at, ok := parseHandle(name); {
		case strings.HasPrefix(name, tempPrefix):
			d.sweepTemp(name)
		case ok && d.expired(name, at):
			_ = d.remove(name)
		}
	}
	_ = d.quota.update(func(usage) (usage, error) {
		return d.makeRoom("", usage{})
	})
	d.clear()
}

// sweepTemp removes a temporary directory if the process that created it is gone and so holds no lock on it.
func (d *diskDir) sweepTemp(name string) {
	fd, err := at.Open(d.fd, name, at.Dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if flock.Try(fd, unix.LOCK_EX) == nil {
		_ = removeDir(d.fd, name)
	}
}

// expired reports whether an artifact has expired. Without a readable manifest, its age decides.
func (d *diskDir) expired(handle string, begun time.Time) bool {
	now := d.now()
	a, err := d.Open(handle)
	if err != nil {
		return begun.Add(d.ttl).Before(now)
	}
	a.Close()
	d.owners.set(handle, a.Manifest.Principal)
	return !now.Before(a.Manifest.ExpiresAt)
}
