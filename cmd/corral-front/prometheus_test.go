package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// monitoring returns the path of a file for Prometheus or Grafana.
func monitoring(t *testing.T, name string) string {
	return filepath.Join(sandboxtest.ModuleRoot(t), "scripts/monitoring", name)
}

// TestAlertRules has promtool check the alert rules, and run their tests.
func TestAlertRules(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("promtool"))
	for _, args := range [][]string{{"check", "rules", monitoring(t, "corral-alerts.yaml")}, {"test", "rules", monitoring(t, "corral-alerts-test.yaml")}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v: %s", args, err, out)
		}
	}
}

// TestPrometheus: Debian's Prometheus, with the configuration that docs/how-to/observe-calls.md shows, scrapes corral serve with
// the token, answers all queries of the dashboard, and an alert fires.
func TestPrometheus(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("prometheus"))
	w, user, session, reader := metered(t)
	for _, arguments := range []string{
		`"code":"true"`, `"code":"exit 3"`, `"code":"sleep 60","timeoutMs":200`, `"code":"true","executable":"/bin/no-shell"`,
	} {
		w.call(user, session, "runtime_execute", `{"repoId":"app","runtime":"shell",`+arguments+`}`)
	}
	api := startPrometheus(t, strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), "/mcp"), reader)
	sandboxtest.Eventually(t, time.Minute, "Prometheus has scraped corral serve", func() bool {
		return api.value(`corral_jobs_total{job="corral",status="success"}`) == "1"
	})
	for query, want := range map[string]string{
		`up{job="corral"}`: "1", `corral_supervisor_up`: "1", `corral_jobs_running_limit`: "8", `corral_refusals_total{step="audit"}`: "0",
		`corral_jobs_total{status="failure"}`: "1", `corral_jobs_total{status="timeout"}`: "1", `corral_jobs_total{status="denied"}`: "1",
		`sum(corral_denials_total)`: "1", `corral_limits_hit_total{limit="time"}`: "1", `corral_job_stage_seconds_count{stage="run"}`: "3",
	} {
		if got := api.value(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	dashboard, err := os.ReadFile(monitoring(t, "corral-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	queries := expressions(t, dashboard)
	for _, query := range queries {
		api.value(strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m", "$__range", "1h").Replace(query))
	}
	w.call(user, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"true","executable":"/bin/no-shell"}`)
	sandboxtest.Eventually(t, time.Minute, "the alert of the test fires", func() bool {
		return api.value(`ALERTS{alertname="CorralDenialsRising",alertstate="firing"}`) == "1"
	})
}

// expressions returns the queries of a dashboard's panels, and checks that no two panels share an id or a place.
func expressions(t *testing.T, dashboard []byte) (queries []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		t.Fatal(err)
	}
	ids, cells := map[int]bool{}, map[[2]int]bool{}
	for _, panel := range d.Panels {
		if ids[panel.ID] || panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %d: twice, or without a query", panel.ID)
		}
		ids[panel.ID] = true
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				cell := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				if cells[cell] || cell[0] >= 24 {
					t.Fatalf("panel %d covers another one, or is too wide", panel.ID)
				}
				cells[cell] = true
			}
		}
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
		}
	}
	if len(queries) == 0 {
		t.Error("the dashboard has no query")
	}
	return queries
}

// A prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// documented returns the scrape configuration, which the page must show as it is in the file.
func documented(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/how-to/observe-calls.md"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(monitoring(t, "corral-prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(rule_files:.*?)```").FindStringSubmatch(string(page))
	if shown == nil || !strings.HasSuffix(string(file), "\n"+shown[1]) {
		t.Fatalf("the page does not show the configuration of the file:\n%s", file)
	}
	return string(file)
}

// startPrometheus starts Prometheus for a server, with the documented configuration: only paths, the address and the times differ.
func startPrometheus(t *testing.T, server, token string) prometheus {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	rules, err := os.ReadFile(monitoring(t, "corral-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// One denial is enough here, at once.
	eager := strings.NewReplacer("(increase(corral_denials_total[10m])) > 20\n        for: 5m", "(increase(corral_denials_total[10m])) > 0").Replace(string(rules))
	if eager == string(rules) {
		t.Fatal("CorralDenialsRising is not as expected")
	}
	file := write("prometheus.yml", "global: {evaluation_interval: 1s}\n"+strings.NewReplacer(
		"/usr/share/corral/monitoring/corral-alerts.yaml", write("rules.yaml", eager), "/etc/prometheus/corral.token", write("token", token),
		"127.0.0.1:7070", server, "scrape_interval: 15s", "scrape_interval: 1s").Replace(documented(t)))
	address := net.JoinHostPort("127.0.0.1", sandboxtest.Port(t))
	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Dir = dir
	sandboxtest.Start(t, cmd)
	api := prometheus{t, "http://" + address}
	sandboxtest.Eventually(t, time.Minute, "Prometheus is ready", func() bool {
		r, err := http.Get(api.url + "/-/ready")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
	return api
}

// value returns the first value of a query, "" if it has none. A query that is refused fails the test.
func (p prometheus) value(query string) string {
	p.t.Helper()
	code, body := mcptest.Fetch(p.t, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(query), "")
	var a struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || code != http.StatusOK {
		p.t.Errorf("%s: %d %s", query, code, body)
	}
	if len(a.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(a.Data.Result[0].Value[1])
}
