package sessions

import (
	"fmt"
	"time"

	"corral/isolate/layer"
	"corral/job"
)

// Layers configures the layers of sessions.
type Layers struct {
	Disk, Inodes       int64         // defaults; 0 is job.DefaultLayerDisk and job.DefaultLayerInodes
	Reserve            int64         // what each open layer has for certain; 0 is 32 MiB
	MaxDisk, MaxInodes int64         // maximums per session; 0 is 64 GiB and 10 million
	Idle, MaxIdle      time.Duration // default and maximum idle timeout; 0 is job.DefaultSessionIdle and a day
	Keep               time.Duration // how long the layer of an ended session is kept; 0 is a week, negative is forever
}

// Complete sets defaults for zero fields, and refuses values out of range.
func (l *Layers) Complete() error {
	for field, value := range map[*int64]int64{
		&l.Reserve: 32 << 20, &l.Disk: job.DefaultLayerDisk, &l.Inodes: job.DefaultLayerInodes, &l.MaxDisk: 64 << 30, &l.MaxInodes: 10_000_000,
	} {
		if *field == 0 {
			*field = value
		}
	}
	for field, value := range map[*time.Duration]time.Duration{
		&l.Idle: job.DefaultSessionIdle, &l.MaxIdle: 24 * time.Hour, &l.Keep: 7 * 24 * time.Hour,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if l.Disk < layer.MinBytes || l.Disk > l.MaxDisk || l.MaxDisk > layer.MaxBytes {
		return fmt.Errorf("layer sizes: default %s, maximum %s; both must be from %s to %s, the default at most the maximum", job.FormatSize(l.Disk), job.FormatSize(l.MaxDisk),
			job.FormatSize(layer.MinBytes), job.FormatSize(layer.MaxBytes))
	}
	return nil
}
