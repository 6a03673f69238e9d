// Package metrics stands for metrics about usage records for billing, see package snowplow.
package metrics

// Options of a collector of metrics. They do nothing.
type CollectorOption struct{}

func WithCollectorNamespace(string) CollectorOption { return CollectorOption{} }

func WithCollectorBatchDeliveryDurationBuckets([]float64) CollectorOption { return CollectorOption{} }
