package rpc

import "corral/internal/jsonrpc"

// A method is one request method of a family.
type method struct {
	name   string
	family *family
	serve  func(c *client, f *family, m *message) *jsonrpc.Error
}

// methods returns all methods but initialize.
func methods() []method { return table[:] }

var table = [...]method{
	{"command/exec", execFamily, (*client).exec},
	{"command/exec/write", execFamily, (*client).write},
	{"command/exec/resize", execFamily, (*client).resize},
	{"command/exec/terminate", execFamily, (*client).terminate},
	{"process/spawn", processFamily, (*client).spawn},
	{"process/writeStdin", processFamily, (*client).write},
	{"process/resizePty", processFamily, (*client).resize},
	{"process/kill", processFamily, (*client).terminate},
}
