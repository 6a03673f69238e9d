package commands

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/internal/users"
	"corral/isolate/client/embed"
	"corral/store/authority"
)

// authority prints or replaces the certificates that jobs trust where rules are about requests.
func (o *networkOptions) authority(words []string) error {
	dir := filepath.Join(cmp.Or(o.state, supervisor.StateDir), "authority")
	switch strings.Join(words, " ") {
	case "show":
		if err := embed.Drop(); err != nil {
			return err
		}
		return showNetwork(dir)
	case "rotate":
		return o.rotate(dir)
	}
	return errors.New("must be authority show or authority rotate\nhint: corral network --help")
}

// showNetwork prints the certificates, each after a line that says whose jobs trust it: programs that read PEM pass over it.
func showNetwork(dir string) error {
	certificates, err := authority.Certificates(dir)
	if err != nil {
		return err
	}
	if len(certificates) == 0 {
		return errNoAuthority
	}
	var names users.Names
	var b strings.Builder
	for _, c := range certificates {
		fmt.Fprintf(&b, "# jobs of %s\n%s", text.Line(names.Of(c.User), 32), c.PEM)
	}
	return cli.Print(b.String())
}

var errNoAuthority = errors.New("there is no authority yet: the first job of a user whose rules are about requests makes it")

// rotate replaces the authorities, and has the supervisor take them for the jails that it builds from then on.
func (o *networkOptions) rotate(dir string) error {
	if !embed.Root() {
		return errors.New("authorities belong to root\nhint: sudo corral network authority rotate")
	}
	if o.state != "" && o.socket == "" {
		o.file = o.state // another supervisor's: the service's need not read anything again
	}
	replaced := 0
	err := supervisor.AsOperator(cmp.Or(o.state, supervisor.StateDir), func() (err error) {
		replaced, err = authority.Rotate(dir)
		return err
	})
	if err == nil && replaced == 0 {
		err = errNoAuthority
	}
	if err != nil {
		return err
	}
	return o.apply(replacedCAs(replaced), ": sessions that are open keep the former one")
}

func replacedCAs(n int) string {
	if n == 1 {
		return "1 authority was replaced"
	}
	return fmt.Sprintf("%d authorities were replaced", n)
}
