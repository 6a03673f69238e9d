// Package oidc stands for the identity under which usage records for billing are delivered, see package snowplow.
package oidc

// Options of a source of identity tokens. They do nothing.
type (
	Option struct{}
	Source struct{}
)

func WithSkipIfUnsupportedCloud(bool) Option { return Option{} }
func NewSource(...Option) *Source            { return &Source{} }
