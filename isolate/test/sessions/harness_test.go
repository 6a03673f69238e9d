// Package sessions tests sessions from the side of their clients: what jobs of a session share, what ends a session, and what is
// kept of it.
package sessions

import (
	"os"
	"testing"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/client"
	"corral/isolate/test/supervise"
)

// Helpers of all of the supervisor's tests.
const owner = sandboxtest.Owner

var (
	newRepo, mkdir, put = sandboxtest.NewRepo, sandboxtest.Mkdir, sandboxtest.Put
	exists, eventually  = sandboxtest.Exists, sandboxtest.Settled
	refusedAt           = sandboxtest.RefusedAt
)

type did = fronttest.Did

func TestMain(m *testing.M) { os.Exit(supervise.Main(m)) }

// A front is a client of a supervisor with a repository of its own.
type front struct{ *supervise.Front }

// newFront returns a front of a new supervisor.
func newFront(t testing.TB, change ...func(*isolate.Config)) *front {
	t.Helper()
	return &front{supervise.New(t, change...)}
}

// shared returns a front of the supervisor that these tests share. Its user may have sessions that earlier tests left.
func shared(t testing.TB) *front {
	t.Helper()
	return &front{supervise.Shared(t)}
}

// with returns a front of the same supervisor with another client and repository.
func (f *front) with(t testing.TB, c *client.Client, repo string) *front {
	return &front{f.With(t, c, repo)}
}
