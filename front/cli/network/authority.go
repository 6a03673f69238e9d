package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"corral/front/cli"
	"corral/front/privilege"
	"corral/store/authority"
)

// defaultState is the state directory of the service.
const defaultState = "/var/lib/corral"

// authority prints or replaces the certificate that jobs trust where rules are about requests.
func (o *options) authority(words []string) (int, error) {
	state := o.state
	if state == "" {
		state = defaultState
	}
	dir := filepath.Join(state, "authority")
	switch strings.Join(words, " ") {
	case "show":
		if err := privilege.Drop(); err != nil {
			return cli.Failure, err
		}
		certificate, err := authority.Certificate(dir)
		if errors.Is(err, authority.ErrNone) {
			return cli.Failure, errors.New("there is no authority yet: the first job whose rules are about requests makes it")
		}
		if err != nil {
			return cli.Failure, err
		}
		return cli.Print(string(certificate))
	case "rotate":
		return o.rotate(dir)
	}
	return cli.Failure, errors.Join(privilege.Drop(), errors.New("must be authority show or authority rotate\nhint: corral network --help"))
}

// rotate replaces the authority, and has the supervisor take it for the jails that it builds from then on.
func (o *options) rotate(dir string) (int, error) {
	if os.Geteuid() != 0 {
		return cli.Failure, errors.New("the authority belongs to root\nhint: sudo corral network authority rotate")
	}
	if o.state != "" && o.socket == "" {
		o.file = o.state // another supervisor's: the service's need not read anything again
	}
	if err := authority.Rotate(dir); err != nil {
		return cli.Failure, errors.Join(err, privilege.Drop())
	}
	notes, err := o.reload()
	if err = errors.Join(err, privilege.Drop()); err != nil {
		return cli.Failure, fmt.Errorf("the authority was replaced: %w", err)
	}
	for _, note := range notes {
		cli.Note(note)
	}
	return cli.Print("the authority was replaced: sessions that are open keep the former one\n")
}
