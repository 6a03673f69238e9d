package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// Layers is about sessions, and the layers that they write to.
type Layers struct {
	Disk      int64         // layers.disk: bytes of a layer, of a session that asks for no other
	Inodes    int64         // layers.inodes: files of it
	MaxDisk   int64         // layers.max_disk: the most that a session may ask for
	MaxInodes int64         // layers.max_inodes: likewise
	Idle      time.Duration // layers.idle: a session that asks for no other ends when it ran no job for so long
	MaxIdle   time.Duration // layers.max_idle: the longest that a session may ask for
	Keep      time.Duration // layers.keep: how long the layer of an ended session is kept that holds changes
}

func defaultLayers() Layers {
	return Layers{
		Disk: job.DefaultLayerDisk, Inodes: job.DefaultLayerInodes, MaxDisk: 64 << 30, MaxInodes: 10_000_000,
		Idle: job.DefaultSessionIdle, MaxIdle: 24 * time.Hour, Keep: 7 * 24 * time.Hour,
	}
}

func (l *Layers) keys() []key {
	inodes := func(name string, into *int64) key {
		return key{name, func(p *parser, n *yaml.Node) { *into = p.number(name, "count", n, 64, 1<<31) }}
	}
	return []key{
		sizeKey("disk", &l.Disk, 16<<20, 1<<40),
		inodes("inodes", &l.Inodes),
		sizeKey("max_disk", &l.MaxDisk, 16<<20, 1<<40),
		inodes("max_inodes", &l.MaxInodes),
		timeKey("idle", &l.Idle, time.Second, 30*24*time.Hour),
		timeKey("max_idle", &l.MaxIdle, time.Second, 30*24*time.Hour),
		timeKey("keep", &l.Keep, time.Minute, 366*24*time.Hour),
	}
}

func (w *writer) layers(l Layers) {
	w.line("disk: %s\ninodes: %d\nmax_disk: %s\nmax_inodes: %d\nidle: %s\nmax_idle: %s\nkeep: %s",
		job.FormatSize(l.Disk), l.Inodes, job.FormatSize(l.MaxDisk), l.MaxInodes, l.Idle, l.MaxIdle, l.Keep)
}
