package config

import (
	"reflect"
	"strings"
)

// Changed returns the keys of front-ends whose values differ between a and b, as `section.key`, in the order of the documentation.
// Keys for the supervisor alone are left out.
func Changed(a, b Config) []string {
	return changed("", reflect.ValueOf(a), reflect.ValueOf(b))
}

// Live returns running with what a front-end that runs can take over from fresh: repositories, principals and the rules for jobs.
// The other keys need a restart: objects that depend on them exist.
func Live(running, fresh Config) Config {
	c := running
	c.Repos, c.Principals, c.Defaults, c.Ceilings, c.Profiles = fresh.Repos, fresh.Principals, fresh.Defaults, fresh.Ceilings, fresh.Profiles
	c.Runtime = fresh.Runtime
	r := running.Runtime // the queue of calls exists
	c.Runtime.MaxConcurrentJobs, c.Runtime.QueueWait, c.Runtime.QueueLength = r.MaxConcurrentJobs, r.QueueWait, r.QueueLength
	return c
}

func changed(prefix string, a, b reflect.Value) []string {
	var keys []string
	for i := range a.NumField() {
		field := a.Type().Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.Tag.Get("scope") == "supervisor" || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		if isSection(field.Type) && prefix == "" {
			keys = append(keys, changed(key+".", a.Field(i), b.Field(i))...)
			continue
		}
		keys = append(keys, prefix+key)
	}
	return keys
}

// isSection reports whether t is a struct with keys of its own. Limits are written as one value.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Field(0).Tag.Get("yaml") != ""
}
