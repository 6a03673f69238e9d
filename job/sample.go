package job

import "time"

// MaxSamples is the maximum number of samples of a job.
const MaxSamples = 120

// A Sample is what a job used at one moment of its life. -1 means that the value is not known.
type Sample struct {
	At     time.Duration // since the supervisor accepted the job
	CPU    time.Duration // so far, user and system
	Memory int64         // bytes in use
}
