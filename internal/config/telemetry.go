package config

import (
	"net/url"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Telemetry is about the spans of calls.
type Telemetry struct {
	Traces string // telemetry.traces: a Traces constant
	// File is telemetry.file: where TracesFile writes to; absolute and clean. Never "" with TracesFile.
	File string
	// Endpoint is telemetry.endpoint: the URL of the collector of TracesOTLP, without /v1/traces; "" leaves it to
	// OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint    string
	HeadersFile string // telemetry.headers_file: headers for the collector, absolute and clean; "" is none
	Service     string // telemetry.service: what the service is called in spans
}

// Where spans go.
const (
	TracesOff    = "off"
	TracesStderr = "stderr"
	TracesFile   = "file"
	TracesOTLP   = "otlp"
)

func defaultTelemetry() Telemetry { return Telemetry{Traces: TracesOff, Service: "corral"} }

func (t *Telemetry) keys() []key {
	return []key{
		{"traces", func(p *parser, n *yaml.Node) { t.readTraces(p, n) }},
		{"file", func(p *parser, n *yaml.Node) { t.File = p.path("file", n) }},
		{"endpoint", func(p *parser, n *yaml.Node) {
			t.Endpoint = p.text("endpoint", n)
			if why := collector(t.Endpoint); t.Endpoint != "" && why != "" {
				p.fail(n, "`endpoint`: %s is wanted", why) // not repeated: it may have a password
			}
		}},
		{"headers_file", func(p *parser, n *yaml.Node) { t.HeadersFile = p.path("headers_file", n) }},
		{"service", func(p *parser, n *yaml.Node) {
			t.Service = p.text("service", n)
			if len(t.Service) > 255 || strings.ContainsFunc(t.Service, unicode.IsControl) {
				p.wanted("service", "a name of at most 255 bytes", n)
			}
		}},
	}
}

func (t *Telemetry) readTraces(p *parser, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Value == "stdout" {
		p.fail(n, "`traces`: standard output belongs to the protocol of a server: write stderr")
		return
	}
	t.Traces = p.word("traces", n, []string{TracesOff, TracesStderr, TracesFile, TracesOTLP})
	p.check(func(c *Config) {
		if c.Telemetry.Traces == TracesFile && c.Telemetry.File == "" {
			p.fail(n, "`traces`: file needs a `file` to write to")
		}
	})
}

// collector says what is wanted of the URL of a collector.
func collector(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "a URL such as http://localhost:4318 (headers are in headers_file)"
	}
	return ""
}

func (w *writer) telemetry(t Telemetry) {
	w.line("traces: %s", t.Traces)
	for _, one := range []struct{ name, value string }{
		{"file", t.File}, {"endpoint", t.Endpoint}, {"headers_file", t.HeadersFile},
	} {
		if one.value != "" {
			w.line("%s: %s", one.name, quote(one.value))
		}
	}
	w.line("service: %s", quote(t.Service))
}
