package transport

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"corral/rpc"
)

// TestWebRevoked: a WebSocket is closed when its token is revoked or its principal may use other repositories.
func TestWebRevoked(t *testing.T) {
	for name, after := range map[string]struct {
		who rpc.Caller
		ok  bool
	}{
		"revoked": {rpc.Caller{}, false},
		"fewer":   {rpc.Caller{Principal: "token:a", Repos: []string{"x"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var changed atomic.Bool
			ended := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			served := make(chan error, 1)
			go func() {
				served <- ServeWeb(ctx, l, WebOptions{Log: silent(), Authenticate: func(string) (rpc.Caller, bool) {
					if changed.Load() {
						return after.who, after.ok
					}
					return rpc.Caller{Principal: "token:a"}, true
				}}, func(_ context.Context, conn rpc.Conn, _ rpc.Caller) error {
					_, err := conn.Read()
					ended <- err
					return err
				})
			}()
			ws, _, err := websocket.Dial(t.Context(), "ws://"+l.Addr().String()+"/", &websocket.DialOptions{
				HTTPHeader: http.Header{"Authorization": {"Bearer a"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ws.CloseNow() }()
			changed.Store(true)
			if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("the client got %v", err)
			}
			if err := within(t, ended); err == nil {
				t.Error("the server reads on")
			}
			cancel()
			if err := within(t, served); err != nil {
				t.Error(err)
			}
		})
	}
}
