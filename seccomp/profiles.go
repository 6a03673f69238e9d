package seccomp

import (
	"errors"
	"strings"
)

// ErrProfile means that the profile is not one of Profiles. Errors of Compile wrap it.
var ErrProfile = errors.New("unknown seccomp profile")

// The names of the profiles.
const (
	defaultProfile = "default"
	strictProfile  = "strict"
)

// Scanner is the profile of the scanner, which no job can request: "strict" plus openat2(2), with which the scanner
// stays beneath the repository. Jobs lack that call because it can create files with set-id bits; no such file of the
// scanner would outlive it.
const Scanner = "scanner"

// starting, appended to the name of a profile, names that profile before the job's program is executed: it also
// allows openat2(2), which the start needs to open the working directory beneath the repository, and the job may not
// use.
const starting = ", starting"

// Profiles returns the names of the profiles that a job may have, the default first. The caller owns the slice.
func Profiles() []string {
	return []string{defaultProfile, strictProfile}
}

// basedOn returns the profile whose rows and conditions apply to a profile. If it is another one, the profile has
// openat2 in addition.
func basedOn(profile string) string {
	profile = strings.TrimSuffix(profile, starting)
	if profile == Scanner {
		return strictProfile
	}
	return profile
}
