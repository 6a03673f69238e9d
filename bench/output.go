package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"corral/internal/test/logtest"
)

// Constants of outputMode: how much of a stream an artifact stores, and the file that is written repeatedly.
const (
	maxKept   = 512 << 20
	chunkSize = 16 << 20
)

// outputMode measures how fast output of a job becomes an artifact, next to gzip -1 of the same bytes into a file.
func outputMode(ctx context.Context, o *options) error {
	n := min(o.bytes, maxKept) / chunkSize
	if n < 1 {
		return fmt.Errorf("-bytes: at least %d", chunkSize)
	}
	size := n * chunkSize
	if err := o.writeLog(); err != nil {
		return err
	}
	whole, err := o.configured("whole.yaml", "output:\n  keep: 512MiB\nartifacts:\n  max_bytes: 16GiB\n")
	if err != nil {
		return err
	}
	defer whole.close()
	usual, err := o.configured("usual.yaml", "")
	if err != nil {
		return err
	}
	defer usual.close()
	cat := "cat" + strings.Repeat(" chunk.log", int(n))
	rows := []*Row{
		{Name: "cat | gzip -1 >file", Sets: "nothing", Run: command("/bin/sh", "-c",
			"cd "+o.repo+" && "+cat+" | gzip -1 >"+filepath.Join(o.dir, "out.gz"))},
		{
			Name: "cat | cat >/dev/null", Sets: "nothing, and does not compress",
			Run: command("/bin/sh", "-c", "cd "+o.repo+" && "+cat+" | cat >/dev/null"),
		},
		{
			Name: "corral, runtime_execute", Sets: "all of it kept: compressed, hashed, indexed, secrets looked for",
			Run: func() error { return writes(whole, o, cat, size) },
		},
		{
			Name: "corral, runtime_execute, usual", Sets: "64 MiB of it kept, the default",
			Run: func() error { return writes(usual, o, cat, size) },
		},
	}
	rows = o.onlyRows(rows)
	err = measureOnce(ctx, o, rows, min(o.rounds, 3))
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%d MiB of log lines to an artifact", size>>20)
	r := newResult("output", title, "row", "MB/s, median", "× gzip's", "what is done")
	plot := &Plot{Title: title, Unit: "MB/s, median"}
	for _, row := range rows {
		if row.Missing != "" {
			r.add(row.Name, "–", "–", "not measured: "+row.Missing)
			continue
		}
		f := row.against(rows[0])
		rate := float64(size) / 1e6 / (f.median / 1000)
		r.add(row.Name, number(rate), fmt.Sprintf("%.2f", 1/f.ratio), row.Sets)
		plot.Bars = append(plot.Bars, Bar{Label: row.Name, Value: rate, Ours: ours(row.Name)})
	}
	r.Plots = append(r.Plots, plot)
	return o.publish(r)
}

// configured starts an agent whose server has a configuration with a long timeout of calls.
func (o *options) configured(name, more string) (*server, error) {
	file := filepath.Join(o.dir, name)
	if err := os.WriteFile(file, []byte("version: 1\nruntime:\n  max_duration: 10m\n"+more), 0o644); err != nil {
		return nil, err
	}
	return newAgent(o, "--config", file)
}

// measureOnce is measure without warm-up, for slow rows.
func measureOnce(ctx context.Context, o *options, rows []*Row, rounds int) error {
	for i := range rounds {
		if i > 0 && o.over() {
			return nil
		}
		for n, r := range rows {
			if r.Missing != "" {
				continue
			}
			times, err := r.batch(ctx, pace{1, 0})
			if ctx.Err() != nil {
				return interrupted(rows)
			}
			if err != nil && n == 0 {
				return err
			}
			if err != nil {
				r.fail(err)
				continue
			}
			r.times = append(r.times, times...)
		}
	}
	return nil
}

// writeLog writes chunk.log, a log of services, into the repository.
func (o *options) writeLog() error {
	f, err := os.OpenFile(filepath.Join(o.repo, "chunk.log"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(f, logtest.Noise("journal", 1), chunkSize)
	return err
}

// writes has a script of an agent write size bytes.
func writes(a *server, o *options, script string, size int64) error {
	result, err := a.ask("tools/call", map[string]any{
		"name": "runtime_execute", "arguments": map[string]any{
			"repoId": filepath.Base(o.repo), "runtime": "shell", "code": script + "\n", "timeoutMs": 600_000,
		},
	})
	if err != nil {
		return err
	}
	var r struct {
		StructuredContent struct {
			Status      string
			OutputBytes int64
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.StructuredContent.Status != "success" || r.StructuredContent.OutputBytes != size {
		return fmt.Errorf("%s", result)
	}
	return nil
}
