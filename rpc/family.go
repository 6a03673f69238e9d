package rpc

import (
	"corral/internal/jsonrpc"
	"corral/job"
)

// A family is one set of methods that manage processes. Both families behave the same but differ in method and field
// names. Pointers to families are compared, because they are part of the key of a process.
type family struct {
	name   string // method that starts a process
	output string // method of output notifications
	exited string // method of the exit notification; "" if the response to name reports the exit
	id     string // parameter that identifies a process
	// Prefixes of error messages, as the protocol words them.
	duplicate, unknown, unspawned string
	noStdin, noSize, badSize      string
	noInput                       string
}

var execFamily = &family{
	name: "command/exec", output: "command/exec/outputDelta", id: "processId",
	duplicate: "duplicate active command/exec process id:",
	unknown:   "no active command/exec for process id",
	unspawned: "failed to spawn command",
	noStdin:   "stdin streaming is not enabled for this command/exec",
	noSize:    "command/exec size requires tty: true",
	badSize:   "command/exec size rows and cols must be greater than 0",
	noInput:   "command/exec/write requires deltaBase64 or closeStdin",
}

var processFamily = &family{
	name: "process/spawn", output: "process/outputDelta", exited: "process/exited", id: "processHandle",
	duplicate: "duplicate active process handle:",
	unknown:   "no active process for process handle",
	unspawned: "failed to spawn process",
	noStdin:   "stdin streaming is not enabled for this process",
	noSize:    "process/spawn size requires tty: true",
	badSize:   "process size rows and cols must be greater than 0",
	noInput:   "process/writeStdin requires deltaBase64 or closeStdin",
}

// checkSize refuses a terminal size of zero rows or columns.
func (f *family) checkSize(size job.Size) *jsonrpc.Error {
	if size.Rows == 0 || size.Cols == 0 {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "%s", f.badSize)
	}
	return nil
}
