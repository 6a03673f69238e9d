// Package api stands for how another process controls the runner's command wrapper, which this build does not have.
package api

import (
	"context"
	"errors"

	"github.com/sirupsen/logrus"
)

var ErrProcessNotInitialized = errors.New("process not initialized")

type Status string

const (
	StatusUnknown    Status = "unknown"
	StatusRunning    Status = "running"
	StatusInShutdown Status = "in shutdown"
	StatusStopped    Status = "stopped"
)

func (s Status) String() string { return string(s) }

type (
	InitGracefulShutdownRequest interface {
		ShutdownCallbackDef() ShutdownCallbackDef
	}
	ShutdownCallbackDef interface {
		URL() string
		Method() string
	}
	ShutdownCallback interface {
		Run(context.Context)
	}
)

// NewShutdownCallback returns nil: nothing asks for a callback.
func NewShutdownCallback(logrus.FieldLogger, ShutdownCallbackDef) ShutdownCallback { return nil }
