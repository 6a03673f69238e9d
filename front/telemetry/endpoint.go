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

// url returns the URL to which spans are posted.
func (o *Options) url() (*url.URL, error) {
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	switch {
	case o.Endpoint != "":
		return endpoint("telemetry.endpoint", o.Endpoint, tracesPath)
	case o.Getenv(traces) != "":
		return endpoint(traces, o.Getenv(traces), "")
	case o.Getenv(all) != "":
		return endpoint(all, o.Getenv(all), tracesPath)
	}
	return endpoint("", "http://localhost:4318", tracesPath)
}

// endpoint parses the URL s from the setting from, and appends path to it.
func endpoint(from, s, path string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// s is not repeated: it may contain a secret.
		return nil, fmt.Errorf("%s: must be a URL such as http://localhost:4318", from)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s: must not contain a user name\nhint: put an Authorization header into headers_file", from)
	}
	if !strings.HasSuffix(u.Path, path) {
		u = u.JoinPath(path)
	}
	u.Fragment = ""
	return u, nil
}

// loopback reports whether host is this machine, so that no network is involved.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

const maxHeaders = 16 << 10 // bytes of all headers

// headers returns the configured headers for the collector; never nil.
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

// headers parses the headers in list, which come from the setting from. Errors do not repeat values.
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
			return nil, fmt.Errorf("%s: entry %d is not a valid header: must be NAME%sVALUE", from, n+1, separator)
		}
		head.Add(name, value)
	}
	return head, nil
}

// isToken reports whether s is a valid name of a header (RFC 9110, 5.6.2).
func isToken(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
	return s != "" && strings.Trim(s, letters) == ""
}

// readSecret reads a file of headers, of 16 KiB at most, that belongs to this user or root and is not world-readable.
func readSecret(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would block until it has a writer
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case checkOwner(path, info) != nil:
		return "", checkOwner(path, info)
	case info.Mode().Perm()&0o007 != 0:
		return "", fmt.Errorf("%s is world-readable (mode %04o)\nhint: chmod o-rwx %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxHeaders+1))
	if err == nil && len(text) > maxHeaders {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxHeaders)
	}
	return string(text), err
}

// checkOwner returns an error unless the file is regular and belongs to this user or root.
func checkOwner(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user\nhint: chown it, or name another file", path)
	}
	return nil
}
