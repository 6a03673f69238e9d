package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/isolate/client/embed"
)

// Dial connects to the supervisor that listens on socket, "" for the default socket. Its errors have a hint.
func Dial(socket string) (*client.Client, error) {
	c, err := embed.Dial(socket)
	if err != nil {
		return nil, Hint(err, socket)
	}
	return c, nil
}

// DialAsUser is Dial for a process of root that is about to become another user: to the supervisor, the connection is one of that user,
// who might not reach the socket.
func DialAsUser(socket string) (*client.Client, error) {
	who, err := embed.Choose(embed.Nobody())
	if err != nil {
		return nil, err
	}
	c, err := embed.DialAs(who, socket)
	if err != nil {
		return nil, Hint(err, socket)
	}
	return c, nil
}

// Hint adds a hint to an error of connecting to a supervisor.
func Hint(err error, socket string) error {
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w\nhint: add the user to group corral, or run with sudo", err)
	case socket == "":
		return fmt.Errorf("%w\nhint: start corrald as a service, or run with sudo", err)
	}
	return fmt.Errorf("%w\nhint: start corrald with --socket %s", err, socket)
}

// Connect connects a server to the supervisor that listens on socket, "" for the default socket.
func Connect(socket string) (*Connection, error) {
	dial := func() (*client.Client, error) { return Dial(socket) }
	c, err := dial()
	if err != nil {
		return nil, err
	}
	return &Connection{dial: dial, client: c}, nil
}

// Embed starts corrald, which is installed beside this program, as a child, and drops root. The returned function ends it.
// o.Program is ignored.
func Embed(o embed.Options) (*client.Client, func(), error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	o.Program = filepath.Join(filepath.Dir(exe), "corrald")
	return embed.Start(o)
}

// Start is Embed for a server.
func Start(o embed.Options) (*Connection, error) {
	c, finish, err := Embed(o)
	if err != nil {
		return nil, err
	}
	return New(c, finish), nil
}

// New returns a server's connection to a supervisor that ends with the server, by finish.
func New(c *client.Client, finish func()) *Connection { return &Connection{client: c, finish: finish} }
