package names

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of connections.
const (
	maxConns = 16
	// maxQueries is how many queries one connection may make.
	maxQueries = 1024
	tcpIdle    = 10 * time.Second
)

// ServeUDP answers queries until conn is closed.
func ServeUDP(conn net.PacketConn, table Table) {
	query := make([]byte, maxQuery+1) // one more: what is longer shows
	for {
		n, from, err := conn.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // an ICMP error for an answer that the job did not wait for
			continue
		}
		if reply := Answer(query[:n], table); reply != nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

// ServeTCP answers queries until l is closed, and then ends all connections.
func ServeTCP(l net.Listener, table Table) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slots := make(chan struct{}, maxConns)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no descriptors
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		wg.Go(func() {
			end := context.AfterFunc(ctx, func() { conn.Close() })
			serveConn(conn, table)
			end()
			<-slots // first: its client can connect again at once when it sees the end
			conn.Close()
		})
	}
}

// serveConn answers the queries of one connection.
func serveConn(conn net.Conn, table Table) {
	buffer := make([]byte, maxQuery)
	for range maxQueries {
		_ = conn.SetDeadline(time.Now().Add(tcpIdle))
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, buffer[:n]); err != nil {
			return
		}
		reply := Answer(buffer[:n], table)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
