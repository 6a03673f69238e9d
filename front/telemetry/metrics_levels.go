package telemetry

import "github.com/prometheus/client_golang/prometheus"

// levels collects what is read when it is scraped: of the queue, the store of artifacts and the supervisor.
type levels struct{ MetricsOptions }

func level(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

var (
	storedBytes   = level("corral_artifacts_bytes", "Size on disk of the artifacts of the server's user, of all its servers.")
	storedLimit   = level("corral_artifacts_limit_bytes", "Size of the artifacts from which the oldest ones are evicted.")
	jobsRunning   = level("corral_jobs_running", "Jobs of tools that run now.")
	runningLimit  = level("corral_jobs_running_limit", "Maximum number of jobs of tools that run at once.")
	jobsWaiting   = level("corral_jobs_waiting", "Jobs of tools that wait for another one to end.")
	waitingLimit  = level("corral_jobs_waiting_limit", "Maximum number of jobs of tools that wait.")
	supervisorSet = level("corral_supervisor_up", "Whether the supervisor can be reached: 1 or 0.")
)

// Describe implements prometheus.Collector.
func (l *levels) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		storedBytes, storedLimit, jobsRunning, runningLimit, jobsWaiting, waitingLimit, supervisorSet,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l *levels) Collect(to chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, n float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n) }
	if l.Stored != nil {
		if n, ok := l.Stored(); ok {
			set(storedBytes, float64(n))
		}
	}
	if l.StoredLimit > 0 {
		set(storedLimit, float64(l.StoredLimit))
	}
	if l.Load != nil {
		now := l.Load()
		set(jobsRunning, float64(now.Running))
		set(runningLimit, float64(now.MaxRunning))
		set(jobsWaiting, float64(now.Waiting))
		set(waitingLimit, float64(now.MaxWaiting))
	}
	if l.Ready != nil {
		up := 0.0
		if l.Ready() {
			up = 1
		}
		set(supervisorSet, up)
	}
}
