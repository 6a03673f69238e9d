package commands

import (
	"errors"
	"os"

	"corral/front/supervisor"
	"corral/internal/lazyregexp"
	"corral/isolate/client"
	"corral/isolate/client/embed"
)

// connect connects to the supervisor, or starts one for the session's layer if root runs this and no supervisor
// listens, and drops root. It puts pipesOfAll pipes into p, which belong to the user that the supervisor accepts descriptors
// from.
func (o *changesOptions) connect(p *pipes) (*client.Client, func(), error) {
	c, err := embed.Dial(o.supervisor)
	switch {
	case err == nil: // before root is dropped: the supervisor identifies its client
		if err := errors.Join(embed.Piping.Do(func() error { return p.make(pipesOfAll) }), embed.Drop()); err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
		return c, func() { _ = c.Close() }, nil
	case o.supervisor != "" || !embed.Root() || !sessionID().MatchString(o.handle):
		return nil, nil, errors.Join(supervisor.Hint(err, o.supervisor), embed.Drop())
	}
	c, finish, err := supervisor.Embed(embed.Options{Kept: o.handle})
	if err != nil {
		return nil, nil, err
	}
	if err := p.make(pipesOfAll); err != nil {
		finish()
		return nil, nil, err
	}
	return c, finish, nil
}

// sessionID matches the ids of sessions. A supervisor that is started for one layer does not know names of sessions.
var sessionID = lazyregexp.New("^[0-9a-f]{32}$")

// pipesOfAll is how many pipes a command needs: show runs corral-layer twice, with two pipes each.
const pipesOfAll = 4

// pipes are created before they are used, by another user.
type pipes [][2]*os.File

func (p *pipes) make(n int) error {
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return err
		}
		*p = append(*p, [2]*os.File{r, w})
	}
	return nil
}

// take removes and returns a pipe, which the caller closes.
func (p *pipes) take() (r, w *os.File, err error) {
	if len(*p) == 0 {
		return nil, nil, errors.New("no pipe left")
	}
	first := (*p)[0]
	*p = (*p)[1:]
	return first[0], first[1], nil
}

func (p *pipes) close() {
	for _, one := range *p {
		_ = one[0].Close()
		_ = one[1].Close()
	}
	*p = nil
}
