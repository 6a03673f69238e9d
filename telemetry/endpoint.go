package telemetry

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// tracesPath is added to a collector's URL (OTLP Exporter Configuration).
const tracesPath = "/v1/traces"

// url returns where spans are posted.
func (o *Options) url() (*url.URL, error) {
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	switch {
	case o.Endpoint != "":
		return endpoint("telemetry.endpoint", o.Endpoint, true)
	case o.Getenv(traces) != "":
		return endpoint(traces, o.Getenv(traces), false)
	case o.Getenv(all) != "":
		return endpoint(all, o.Getenv(all), true)
	}
	return endpoint("", "http://localhost:4318", true)
}

// endpoint reads a URL that from says.
func endpoint(from, s string, base bool) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: a URL such as http://localhost:4318 is wanted", from) // not repeated: it may have a secret
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s has a user's name\nhint: put a header Authorization into telemetry.headers_file", from)
	}
	if base && !strings.HasSuffix(u.Path, tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	u.Fragment = ""
	return u, nil
}

// loopback reports whether a host is this one, so that nobody is between.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

const maxHeaders = 16 << 10 // bytes of all headers

// headers returns those that the collector is to get; never nil.
func (o *Options) headers() (http.Header, error) {
	if o.HeadersFile != "" {
		text, err := readSecret(o.HeadersFile)
		if err != nil {
			return nil, fmt.Errorf("telemetry.headers_file: %w", err)
		}
		return headers(o.HeadersFile, strings.Split(text, "\n"), ":", func(s string) (string, error) { return s, nil })
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"} {
		if list := o.Getenv(name); list != "" {
			return headers(name, strings.Split(list, ","), "=", url.PathUnescape)
		}
	}
	return http.Header{}, nil
}

// headers reads headers that from has. Values are not repeated in errors.
func headers(from string, list []string, separator string, decode func(string) (string, error)) (http.Header, error) {
	head := http.Header{}
	for n, one := range list {
		if one = strings.TrimSpace(one); one == "" || one[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(one, separator)
		name = strings.TrimSpace(name)
		value, err := decode(strings.TrimSpace(value))
		if !ok || err != nil || !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("%s: entry %d is no header: NAME%sVALUE is wanted", from, n+1, separator)
		}
		head.Add(name, value)
	}
	return head, nil
}

// isToken says whether s can be a header's name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
	return s != "" && strings.Trim(s, letters) == ""
}

// readSecret reads a small file of this user or root that is not everybody's to read.
func readSecret(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // to open a FIFO waits for its writer
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case trusted(path, info) != nil:
		return "", trusted(path, info)
	case info.Mode().Perm()&0o007 != 0:
		return "", fmt.Errorf("%s can be read by everybody (mode %04o)\nhint: chmod o-rwx %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxHeaders+1))
	if err == nil && len(text) > maxHeaders {
		err = fmt.Errorf("%s has more than %d bytes", path, maxHeaders)
	}
	return string(text), err
}
