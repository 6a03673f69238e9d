package telemetry

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/calls"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// exported returns the names of all metrics of a server with a call of each kind. Those without a label value are not shown before.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	m := NewMetrics(MetricsOptions{
		Stored: func() (int64, bool) { return 1, true }, StoredLimit: 1,
		Load: func() job.Load { return job.Load{} }, Ready: func() bool { return true },
	})
	c := calls.Begin(m, calls.Start{At: time.Now()})
	c.Ran(ran(job.Failure, job.LimitMemory))
	c.Ran(&job.Record{Request: &job.Request{}, Status: job.Denied, Refusal: &job.Refusal{}})
	c.End(t.Context(), nil, 0, "")
	m.Reloaded(true)
	b, err := m.Text(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(string(b), -1) {
		names[line[1]] = true
	}
	return names
}

var (
	metricName   = regexp.MustCompile(`\bcorral_[a-z_]+`)
	metricSeries = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestMonitoring: the dashboard and the alert rules query metrics that exist, the dashboard shows each of them, and the page names
// them all.
func TestMonitoring(t *testing.T) {
	root, names := sandboxtest.ModuleRoot(t), exported(t)
	all := slices.Sorted(maps.Keys(names))
	for file, complete := range map[string]bool{
		"scripts/monitoring/corral-dashboard.json": true, "scripts/monitoring/corral-alerts.yaml": false,
		"docs/how-to/observe-calls.md": true,
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, name := range metricName.FindAllString(string(text), -1) {
			if base := metricSeries.ReplaceAllString(name, ""); names[base] {
				found[base] = true
			} else {
				t.Errorf("%s: %s: the server has %s", file, name, strings.Join(all, ", "))
			}
		}
		for _, name := range all {
			if complete && !found[name] {
				t.Errorf("%s does not have %s", file, name)
			}
		}
		if len(found) == 0 {
			t.Errorf("%s has no metric", file)
		}
	}
}

// TestRunbooks: each alert has the section of the page that it links to.
func TestRunbooks(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	rules, err := os.ReadFile(filepath.Join(root, "scripts/monitoring/corral-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)runbook_url: (\S+)#(\w+)\n`).FindAllStringSubmatch(string(rules), -1)
	if n := strings.Count(string(rules), "- alert: "); n == 0 || n != len(alerts) {
		t.Errorf("%d alerts, %d of them with a runbook", n, len(alerts))
	}
	for _, a := range alerts {
		page, err := os.ReadFile(filepath.Join(root, a[3]))
		if err != nil {
			t.Fatal(err)
		}
		if a[4] != strings.ToLower(a[1]) || !strings.Contains(string(page), "\n### "+a[1]+"\n") {
			t.Errorf("%s: %s has no section for #%s", a[1], a[3], a[4])
		}
		for _, key := range []string{"severity:", "summary:", "description:"} {
			if !strings.Contains(a[2], key) {
				t.Errorf("%s has no %s", a[1], key)
			}
		}
	}
}
