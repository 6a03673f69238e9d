// Package fields stands for the names of log fields that GitLab's services share.
package fields

// Names of fields of the runner's log.
const (
	DurationS      = "duration_s"
	HTTPStatusCode = "http_status_code"
)

// A DeprecatedField is a field that has a newer name.
type DeprecatedField struct{ Standard string }

// Both tables are empty: fields keep the names that the runner gives them.
var (
	Deprecated     = map[string]DeprecatedField{}
	VariantVersion = map[string]int{}
)
