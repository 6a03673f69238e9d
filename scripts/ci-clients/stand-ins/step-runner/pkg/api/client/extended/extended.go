// Package extended stands for a client of a process that runs native steps. It refuses to be made.
package extended

import (
	"context"
	"errors"
	"io"

	"gitlab.com/gitlab-org/step-runner/pkg/api/client"
	"google.golang.org/grpc"
)

var errAbsent = errors.New("native steps are not part of this build: use script in place of run")

// What a client is made from, and what it follows.
type (
	Dialer interface {
		Dial() (*grpc.ClientConn, error)
	}
	FollowOutput struct{ Logs io.Writer }
	Client       struct{}
)

// New returns an error. So no Client exists, and its methods are never called.
func New(Dialer) (*Client, error) { return nil, errAbsent }

func (*Client) CloseConn() error                     { return errAbsent }
func (*Client) Cancel(context.Context, string) error { return errAbsent }

func (*Client) RunAndFollow(context.Context, *client.RunRequest, *FollowOutput) (client.Status, error) {
	return client.Status{}, errAbsent
}
