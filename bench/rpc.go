package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A server is a JSON-RPC server that is called over standard input and output, one line per message, as an agent host does.
type server struct {
	cmd  *exec.Cmd
	to   io.WriteCloser
	from *bufio.Reader
	id   int
}

// front starts a front-end of corral.
func (o *options) front(name string) (*server, error) {
	cmd := exec.Command(filepath.Join(o.bin, "corral"), name, "--supervisor", o.socket, "--repo", o.repo, "--log-level", "warn")
	cmd.Stderr = os.Stderr
	cmd.Env = []string{"PATH=/usr/bin:/bin", "XDG_STATE_HOME=" + o.state, "XDG_CONFIG_HOME=" + o.state}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = o.repo
	return newServer(cmd)
}

func newServer(cmd *exec.Cmd) (*server, error) {
	p := &server{cmd: cmd}
	var err error
	if p.to, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.from = bufio.NewReaderSize(out, 1<<20)
	return p, cmd.Start()
}

// send sends a request and returns its id.
func (p *server) send(method string, params map[string]any) (int, error) {
	p.id++
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": p.id, "method": method, "params": params})
	if err != nil {
		return 0, err
	}
	_, err = p.to.Write(append(request, '\n'))
	return p.id, err
}

// tell sends a notification.
func (p *server) tell(method string) error {
	_, err := io.WriteString(p.to, `{"jsonrpc":"2.0","method":"`+method+`"}`+"\n")
	return err
}

// ask sends a request and returns its result.
func (p *server) ask(method string, params map[string]any) (json.RawMessage, error) {
	id, err := p.send(method, params)
	if err != nil {
		return nil, err
	}
	for {
		line, err := p.from.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		result, ours, err := answer(line, id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		if ours {
			return result, nil
		}
	}
}

// answer reads a line, and reports whether it is the reply to id.
func answer(line []byte, id int) (result json.RawMessage, ours bool, err error) {
	var reply struct {
		ID     any             `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	switch err := json.Unmarshal(line, &reply); {
	case err != nil:
		return nil, false, err
	case reply.Method != "" || reply.ID != float64(id): // a notification or a request
		return nil, false, nil
	case reply.Error != nil:
		return nil, true, fmt.Errorf("%s", reply.Error)
	}
	return reply.Result, true, nil
}

func (p *server) close() {
	p.to.Close()
	_ = p.cmd.Wait()
}
