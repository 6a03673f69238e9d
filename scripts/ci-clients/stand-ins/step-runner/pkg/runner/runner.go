// Package runner stands for what a process that runs native steps tells a function that is built into it.
package runner

import (
	"io"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
)

// A BuiltinContext describes the job. Nothing here makes one.
type BuiltinContext interface {
	GetJobVars() map[string]*structpb.Value
	GetEnvs() map[string]string
	Pipe() (stdout, stderr io.Writer)
	WorkDir() string
	GracefulExitDelay() time.Duration
}
