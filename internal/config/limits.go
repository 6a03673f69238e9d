package config

import (
	"reflect"
	"slices"
	"strings"

	"corral/internal/config/strict"
	"corral/job"
)

// A limitRow says how a limit of package job is written. Its key is the limit's name there, with underscores; its range is the
// limit's.
type limitRow struct {
	name string
	form strict.Form
	doc  string // for schema.json and example.yaml
}

// limitTable has a row for each limit of package job.
var limitTable = []limitRow{
	{"memory", sizeForm, "Of all processes together; there is no swap."},
	{"cpus", cpusForm, "Number of the host's CPUs."},
	{"pids", countForm, "Processes and threads."},
	{"timeout", timeForm, "From start to end."},
	{"tmp", sizeForm, "Bytes of each private directory: /tmp, /var/tmp, /home, /dev/shm."},
	{"tmp inodes", countForm, "Files in each private directory."},
	{"disk", sizeForm, "Bytes that a job may add to the repository."},
	{"inodes", countForm, "Files that a job may add to the repository."},
	{"file size", sizeForm, "Size of the largest file."},
	{"open files", countForm, "Open files of one process."},
}

// limitKey returns the key of a limit.
func limitKey(f job.Field) string { return strings.ReplaceAll(f.Name, " ", "_") }

// limitRows returns the rows of the *job.Limits that into is.
func limitRows(into any) []strict.Row {
	var rows []strict.Row
	for _, f := range into.(*job.Limits).Fields() {
		at := slices.IndexFunc(limitTable, func(r limitRow) bool { return r.name == f.Name })
		rows = append(rows, strict.Row{
			Name: limitKey(f), Form: limitTable[at].form, Bounded: true, Min: f.Min, Max: f.Max,
			Unlimited: f.Liftable, UnlimitedValue: job.Unlimited, Value: reflect.ValueOf(f.Value).Elem(),
		})
	}
	return rows
}

// A place returns where the limit of a key is set, an absent Node if it is not.
type place func(key string) strict.Node

// in returns the places in a mapping of limits.
func in(limits strict.Node) place { return func(key string) strict.Node { return limits.At(key) } }

// settle lowers defaults to ceilings. A default that is set in the file of its ceiling, or in a later one, is an error instead,
// for otherwise every job that requests nothing would be refused.
func settle(defaults *job.Limits, defaultAt place, ceilings *job.Limits, ceilingAt place) {
	top := ceilings.Fields()
	for i, f := range defaults.Fields() {
		ceiling := *top[i].Value
		if ceiling == 0 || ceiling == job.Unlimited || *f.Value != job.Unlimited && *f.Value <= ceiling {
			continue
		}
		key := limitKey(f)
		if set := defaultAt(key); set.Present() && !set.Before(ceilingAt(key)) {
			set.Failf("`%s`: %s is above the ceiling of %s", key, f.Format(*f.Value), f.Format(ceiling))
		}
		*f.Value = ceiling
	}
}
