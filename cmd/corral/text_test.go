package main

import (
	"testing"

	"corral/internal/nearest"
	"corral/job"
)

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{
		"rnu": "run", "runn": "run", "ru": "run", "versin": "version", "dokter": "doctor", "run": "run", "frobnicate": "",
		"": "", "x": "", "serv": "serve", "--run": "run",
	} {
		if got := nearest.Of(in, commands); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    job.Result
		want int
	}{
		{"success", job.Result{Status: job.Success}, 0},
		{"failure", job.Result{Status: job.Failure, ExitCode: 3}, 3},
		{"signal", job.Result{Status: job.Failure, ExitCode: -1, Signal: 15}, 143},
		{"timeout", job.Result{Status: job.Timeout, ExitCode: -1, Signal: 9}, 124},
		{"lost", job.Result{Status: job.Lost, ExitCode: -1, Signal: 9}, 125},
		{"ended on request", job.Result{Status: job.Cancelled, ExitCode: -1, Signal: 9}, 137},
		{"a limit met after the first process", job.Result{Status: job.Failure, ExitCode: 0, Limit: job.LimitMemory}, 137},
	} {
		if got := exitCode(tt.r); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
