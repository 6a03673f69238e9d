package client

import (
	"context"
	"errors"
	"os"

	"corral/isolate/wire"
	"corral/job"
)

// Denied implements job.Auditor: it returns nil when the record is in the audit log. If ctx ends first, the record may be
// there too.
func (c *Client) Denied(ctx context.Context, claim job.Claim, spec job.Spec) error {
	spec.Claim = claim
	claim, err := c.claim(ctx, spec)
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, &wire.Denied{Claim: claim})
	return err
}

// State returns the directory in which the front-ends of a user keep their state, open for reading; the supervisor
// creates it for that user alone. The caller closes it. A client of a socket must pass its own uid; the front-end of an
// embedded supervisor passes the uid that it is about to switch to, or has switched to.
func (c *Client) State(uid uint32) (*os.File, error) {
	files, err := c.ask(context.Background(), &wire.State{UID: uid})
	if err == nil && len(files) != 1 {
		err = errors.New("the supervisor must pass one directory")
	}
	if err != nil {
		wire.CloseAll(files)
		return nil, err
	}
	return files[0], nil
}

// failed returns the error in the body of an Answer to a request that has another answer if it succeeds.
func failed(body []byte) error {
	m, err := wire.Decode[wire.Answer](body)
	switch {
	case err != nil:
		return err
	case m.Error == "":
		return wire.ErrMalformed
	}
	return errors.New(m.Error)
}

// ask sends a request and waits for its Answer. The caller closes the files.
func (c *Client) ask(ctx context.Context, request wire.Message) ([]*os.File, error) {
	a, err := c.exchange(ctx, request)
	if err != nil {
		return nil, err
	}
	m, err := wire.Decode[wire.Answer](a.body)
	if err == nil && a.op != wire.OpAnswer {
		err = wire.ErrMalformed
	}
	if err == nil && m.Error != "" {
		err = errors.New(m.Error)
	}
	if err != nil {
		wire.CloseAll(a.files)
		return nil, err
	}
	return a.files, nil
}
