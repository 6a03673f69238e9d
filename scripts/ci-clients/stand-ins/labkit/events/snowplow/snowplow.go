// Package snowplow stands for the delivery of usage records for billing, which a runner does only if its configuration
// names a collector. This one refuses to start.
package snowplow

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"gitlab.com/gitlab-org/labkit/v2/events/snowplow/metrics"
	"gitlab.com/gitlab-org/labkit/v2/events/snowplow/oidc"
)

var errAbsent = errors.New("usage records for billing are not part of this build: remove the collector from the configuration")

// What the runner says about records, and hears of their delivery.
type (
	SendResult struct {
		EventCount, StatusCode int
		Err                    error
	}
	SendCallback  func(successes, failures []SendResult)
	EmitterOption struct{}
	Emitter       struct{}
	Tracker       struct{}

	BillingEventRequiredInput struct {
		Category, EventType, Realm, UnitOfMeasure string
		Quantity                                  float64
	}
	BillingEventOptionalInput struct {
		Subject, DeploymentType, InstanceID, UniqueInstanceID   string
		ProjectID, NamespaceID, RootNamespaceID, OrganizationID int64
		Metadata                                                map[string]any
	}
)

// Options of an emitter. They do nothing.
func WithCallback(SendCallback) EmitterOption { return EmitterOption{} }

func WithTokenSource(*oidc.Source) EmitterOption { return EmitterOption{} }

func WithMetricsCollectorOptions(...metrics.CollectorOption) EmitterOption { return EmitterOption{} }

// NewEmitter returns an error. So no Emitter or Tracker exists, and their methods are never called.
func NewEmitter(string, ...EmitterOption) (*Emitter, error) { return nil, errAbsent }

func (*Emitter) Collector() prometheus.Collector { panic(errAbsent) }

// NewTracker returns an error.
func NewTracker(string, *Emitter) (*Tracker, error) { return nil, errAbsent }

func (*Tracker) TrackBillingEventWithOptionalInput(BillingEventRequiredInput, BillingEventOptionalInput) error {
	return errAbsent
}

func (*Tracker) Stop() {}
