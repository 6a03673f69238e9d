package client

import "corral/isolate/wire"

// Reload makes the supervisor read its configuration again, which only root may. It returns notes for the operator, or
// why the former configuration still applies.
func (c *Client) Reload() ([]string, error) {
	notes, err := all(c, wire.OpReload, wire.ReadNote)
	var list []string
	for _, n := range notes {
		list = append(list, n.Text)
	}
	return list, err
}
