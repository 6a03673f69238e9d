// Package server stands for a listener for commands to the runner's command wrapper. It answers none.
package server

import (
	"net"

	"github.com/sirupsen/logrus"
)

type Server struct{}

func New(logrus.FieldLogger, any) *Server { return &Server{} }

func (*Server) Listen(l net.Listener) { l.Close() }
func (*Server) Stop()                 {}
