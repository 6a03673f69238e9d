package config

import (
	"reflect"

	"corral/internal/config/strict"
	"corral/job"
)

// limitForms are the forms of limits, by unit.
var limitForms = map[job.Unit]strict.Form{job.Bytes: sizeForm, job.CPUs: cpusForm, job.Count: countForm, job.Time: timeForm}

// limitRows returns the rows of the *job.Limits that into is.
func limitRows(into any) []strict.Row {
	var rows []strict.Row
	for _, f := range into.(*job.Limits).Fields() {
		rows = append(rows, strict.Row{
			Name: f.Key(), Form: limitForms[f.Unit], Bounded: true, Min: f.Min, Max: f.Max,
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
		key := f.Key()
		if set := defaultAt(key); set.Present() && !set.Before(ceilingAt(key)) {
			set.Failf("`%s`: %s is above the ceiling of %s", key, f.Format(*f.Value), f.Format(ceiling))
		}
		*f.Value = ceiling
	}
}
