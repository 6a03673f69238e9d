package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// streams is the number of measurements of each stream.
const streams = 5

// stream measures a program that writes zeros, read from a pipe and from command/exec/outputDelta, in turn.
func stream(_ context.Context, o *options) error {
	source := []string{"/usr/bin/head", "-c", strconv.FormatInt(o.bytes, 10), "/dev/zero"}
	p, err := o.front("exec-server")
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := p.ask("initialize", map[string]any{"clientInfo": map[string]any{"name": "bench", "version": "1"}}); err != nil {
		return err
	}
	if err := p.runs(map[string]any{"command": []string{program}, "cwd": o.repo}); err != nil { // builds the jail
		return err
	}
	before := peak(p.cmd.Process.Pid)
	rows := []*Row{
		{Name: "pipe", Run: func() error { return pipe(source, o.bytes) }},
		{Name: "corral, outputDelta", Run: func() error { return deltas(p, source, o) }},
	}
	for range streams {
		for _, r := range rows {
			start := time.Now()
			if err := r.Run(); err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			r.times = append(r.times, time.Since(start))
		}
	}
	return printStream(rows, o.bytes, before, peak(p.cmd.Process.Pid))
}

func printStream(rows []*Row, n int64, before, after string) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tGiB/s\t× PIPE\tSERVER'S PEAK")
	for i, r := range rows {
		var ratios []float64
		for j, t := range r.times {
			ratios = append(ratios, float64(t)/float64(rows[0].times[j]))
		}
		sort.Slice(r.times, func(a, b int) bool { return r.times[a] < r.times[b] })
		median := r.times[len(r.times)/2]
		memory := ""
		if i > 0 {
			memory = after + ", " + before + " before the first"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\n", r.Name, float64(n)/(1<<30)/median.Seconds(), quantile(ratios, 0.5), memory)
	}
	return w.Flush()
}

// pipe reads the program's output from a pipe.
func pipe(args []string, want int64) error {
	cmd := exec.Command(args[0], args[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var got int64
	buffer := make([]byte, 64<<10)
	for {
		n, err := out.Read(buffer)
		got += int64(n)
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	return counted(got, want)
}

func counted(got, want int64) error {
	if got != want {
		return fmt.Errorf("%d bytes came, not %d", got, want)
	}
	return nil
}

// The parts of a notification that are searched for. A real client parses the whole message; here the server is measured, so
// the client does as little as possible, but it decodes the data.
var (
	outputDelta = []byte(`"command/exec/outputDelta"`)
	deltaBase64 = []byte(`"deltaBase64":"`)
)

// deltas reads the program's output from a server's notifications.
func deltas(p *server, args []string, o *options) error {
	id, err := p.send("command/exec", map[string]any{
		"command": args, "processId": "stream", "cwd": o.repo, "streamStdoutStderr": true, "disableOutputCap": true, "disableTimeout": true,
	})
	if err != nil {
		return err
	}
	var got int64
	decoded := make([]byte, 0, 1<<20)
	for {
		line, err := readLine(p)
		if err != nil {
			return err
		}
		if !bytes.Contains(line[:min(len(line), 200)], outputDelta) {
			_, ours, err := answer(line, id)
			if err != nil {
				return err
			}
			if ours {
				return counted(got, o.bytes)
			}
			continue
		}
		_, rest, found := bytes.Cut(line, deltaBase64)
		text, _, closed := bytes.Cut(rest, []byte(`"`))
		if !found || !closed {
			return fmt.Errorf("%.200q is no delta", line)
		}
		if decoded, err = base64.StdEncoding.AppendDecode(decoded[:0], text); err != nil {
			return err
		}
		got += int64(len(decoded))
	}
}

// readLine returns a line, which is valid until the next call.
func readLine(p *server) ([]byte, error) {
	line, err := p.from.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	line = bytes.Clone(line)
	rest, err := p.from.ReadBytes('\n')
	return append(line, rest...), err
}

// peak returns the peak resident set size of a process (VmHWM, proc_pid_status(5)).
func peak(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
