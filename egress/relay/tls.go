package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"corral/internal/text"
)

// Descriptions of alerts, RFC 8446.
const (
	alertAccessDenied     = 49
	alertDecodeError      = 50
	alertInternalError    = 80
	alertUnrecognizedName = 112
)

// encryptedHello is the extension of a ClientHello with another, encrypted ClientHello in it, whose name nobody but the server
// can read.
const encryptedHello = 0xfe0d

const maxShown = 100 // bytes of what a job sent, in a reason

// serveTLS passes TLS on, unread after the ClientHello.
func (r *Relay) serveTLS(ctx context.Context, client net.Conn) error {
	server, err := r.greet(ctx, client)
	if err != nil {
		return err
	}
	defer server.Close()
	return r.copyBoth(client, server)
}

// greet checks the ClientHello of a client, and returns the connection to the server, which has got it.
func (r *Relay) greet(ctx context.Context, client net.Conn) (net.Conn, error) {
	_ = client.SetReadDeadline(time.Now().Add(r.head))
	sent, hello, err := readHello(client)
	if err != nil {
		alert(client, alertDecodeError)
		return nil, denied("not a TLS connection: %s", text.Cut(err.Error(), maxShown))
	}
	if d := r.checkHello(hello); d != nil {
		alert(client, alertUnrecognizedName)
		return nil, d
	}
	_ = client.SetReadDeadline(time.Time{})
	server, err := r.dial(ctx)
	if err != nil {
		alert(client, alertAccessDenied)
		return nil, err
	}
	if _, err := server.Write(sent); err != nil {
		alert(client, alertInternalError)
		server.Close()
		return nil, err
	}
	return server, nil
}

func (r *Relay) checkHello(hello *tls.ClientHelloInfo) *Denied {
	switch {
	case slices.Contains(hello.Extensions, encryptedHello):
		return denied("the TLS connection hides the name of its server (ECH)")
	case hello.ServerName == "":
		return denied("the TLS connection names no server (SNI)")
	case !sameName(hello.ServerName, r.name):
		return denied("the TLS connection is for %q", text.Cut(hello.ServerName, maxShown))
	}
	return nil
}

// alert sends a fatal alert, as a server does before it closes.
func alert(client net.Conn, description byte) {
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = client.Write([]byte{21, 3, 3, 0, 2, 2, description})
}

var errRead = errors.New("read")

// readHello reads a ClientHello. It returns all bytes that it read, for the server. crypto/tls parses it: strictly, and from
// any number of records.
func readHello(client net.Conn) ([]byte, *tls.ClientHelloInfo, error) {
	in := &recorder{Conn: client}
	var hello *tls.ClientHelloInfo
	err := tls.Server(in, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = h
			return nil, errRead
		},
		MinVersion: tls.VersionTLS10, // versions are the server's business
	}).Handshake()
	if hello == nil {
		return nil, nil, err
	}
	return in.read, hello, nil
}

// A recorder keeps what is read, and drops what is written.
type recorder struct {
	net.Conn
	read []byte
}

var errLong = errors.New("the ClientHello has more than 16 KiB")

// Read implements net.Conn.
func (r *recorder) Read(p []byte) (int, error) {
	left := maxHead - len(r.read)
	if left == 0 {
		return 0, errLong
	}
	n, err := r.Conn.Read(p[:min(len(p), left)])
	r.read = append(r.read, p[:n]...)
	return n, err
}

// Write implements net.Conn.
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
