package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"corral/internal/users"
	"corral/isolate/wire"
	"corral/job"
)

const (
	// trendLength is how many of the last lists the trend of a job shows.
	trendLength = 8
	// maxFilter is the maximum length of the filter in bytes.
	maxFilter = 100
)

// An order is a way to sort jobs.
type order int

const (
	byAge order = iota
	byCPU
	byMemory
	orders
)

// String returns the order in words.
func (o order) String() string { return [...]string{"age", "CPU time", "memory"}[o] }

// A model is the state of the screen. It is changed by Update alone.
type model struct {
	from          source
	interval      time.Duration
	width, height int
	now           time.Time

	users    *users.Names
	all      []wire.Entry // running jobs
	jobs     []wire.Entry // those of them that the filter selects
	sessions []job.Session
	denials  []wire.Denial            // the oldest first
	share    map[string][]float64     // CPUs in use by each job between the last lists, at most trendLength of them
	cpu      map[string]time.Duration // CPU time of each job at the last list
	filter   string                   // what is shown contains it
	typing   bool                     // keys change the filter
	order    order
	chosen   string // id of the selected job; "" is the first
	ending   string // id of the job that is ended when y is typed
	note     string // about the last key
	fatal    error  // ends the program
	follow   *follower
}

func newModel(from source, interval time.Duration) model {
	return model{from: from, users: &users.Names{}, interval: interval, width: 80, height: 24, now: time.Now()}
}

// listed is the result of asking the supervisor.
type listed struct {
	at       time.Time
	jobs     []wire.Entry
	sessions []job.Session
	denials  []wire.Denial
	err      error
}

// killed is the result of ending a job.
type killed struct {
	id  string
	err error
}

// A tick asks for the next list, and a glance for a look at the output that is followed.
type (
	tick   struct{}
	glance struct{ of *follower }
)

// glances is the time between two looks at the output that is followed.
const glances = 100 * time.Millisecond

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return m.list }

// list asks the supervisor. It runs beside the screen.
func (m model) list() tea.Msg {
	l := listed{at: time.Now()}
	if l.jobs, l.err = m.from.ListCommands(); l.err == nil {
		l.sessions, l.err = m.from.sessions()
	}
	if l.err == nil {
		l.denials, l.err = m.from.Denials()
	}
	return l
}

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case listed:
		if msg.err != nil {
			m.fatal = msg.err
			return m, tea.Quit
		}
		m.take(msg)
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return m, m.list
	case glance:
		if m.follow == msg.of && msg.of != nil && !msg.of.ended() {
			return m, look(msg.of)
		}
	case killed:
		m.note = msg.id + " was ended"
		if msg.err != nil {
			m.note = msg.err.Error()
		}
	case tea.KeyPressMsg:
		switch {
		case m.follow != nil:
			return m.followKey(msg.String())
		case m.typing:
			return m.typeKey(msg)
		}
		return m.key(msg.String())
	}
	return m, nil
}

// take replaces what is shown by a new list.
func (m *model) take(l listed) {
	cpu, share := map[string]time.Duration{}, map[string][]float64{}
	for _, e := range l.jobs {
		cpu[e.Job] = time.Duration(e.CPU)
		if before, known := m.cpu[e.Job]; known && before >= 0 && e.CPU >= 0 && l.at.After(m.now) {
			list := append(m.share[e.Job], float64(cpu[e.Job]-before)/float64(l.at.Sub(m.now)))
			share[e.Job] = list[max(0, len(list)-trendLength):]
		}
	}
	m.all, m.sessions, m.denials, m.cpu, m.share, m.now = l.jobs, l.sessions, l.denials, cpu, share, l.at
	m.selectJobs()
}

// selectJobs selects the jobs that are shown, in their order.
func (m *model) selectJobs() {
	m.jobs = nil
	for _, e := range m.all {
		if m.matches(e.Job, m.users.Of(e.UID), whatOf(e.Tool, e.Runtime), e.Principal, e.Repo, e.Command) {
			m.jobs = append(m.jobs, e)
		}
	}
	m.sort()
}

// matches reports whether one of the words contains the filter, in letters of any case.
func (m *model) matches(words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(w), strings.ToLower(m.filter)) })
}

// typeKey changes the filter.
func (m model) typeKey(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch key.String() {
	case "ctrl+c":
		return m, tea.Quit
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	default:
		if len(m.filter) < maxFilter {
			m.filter += key.Text
		}
	}
	m.selectJobs()
	return m, nil
}

func (m *model) sort() {
	slices.SortStableFunc(m.jobs, func(a, b wire.Entry) int {
		switch m.order {
		case byCPU:
			return cmp.Compare(b.CPU, a.CPU)
		case byMemory:
			return cmp.Compare(b.Memory, a.Memory)
		}
		return cmp.Compare(a.Started, b.Started)
	})
}

// index returns the row of the selected job, 0 if it has ended.
func (m *model) index() int {
	return max(0, slices.IndexFunc(m.jobs, func(e wire.Entry) bool { return e.Job == m.chosen }))
}

// key serves a key in the list.
func (m model) key(key string) (tea.Model, tea.Cmd) {
	if id := m.ending; id != "" {
		m.ending, m.note = "", ""
		if key == "y" {
			return m, func() tea.Msg { return killed{id, m.from.Kill(id)} }
		}
		return m, nil
	}
	m.note = ""
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "up", "k":
		m.choose(-1)
	case "down", "j":
		m.choose(1)
	case "s":
		m.order = (m.order + 1) % orders
		m.sort()
	case "/":
		m.typing = true
	case "esc":
		m.filter = ""
		m.selectJobs()
	case "x", "enter", "f":
		if len(m.jobs) == 0 {
			return m, nil
		}
		e := m.jobs[m.index()]
		if m.chosen = e.Job; key == "x" {
			m.ending = e.Job
			return m, nil
		}
		return m.followJob(e)
	}
	return m, nil
}

// choose moves the selection by rows.
func (m *model) choose(rows int) {
	if len(m.jobs) > 0 {
		m.chosen = m.jobs[min(max(m.index()+rows, 0), len(m.jobs)-1)].Job
	}
}

// followJob shows the output of a job, or says why it cannot be shown.
func (m model) followJob(e wire.Entry) (tea.Model, tea.Cmd) {
	switch {
	case e.Artifact == "":
		m.note = "the output of " + e.Job + " is not stored: it goes to the program that started it"
		return m, nil
	case e.UID != m.from.uid:
		m.note = "the output of " + e.Job + " is another user's: corral logs -f " + e.Job
		return m, nil
	}
	m.follow = startFollower(e)
	return m, look(m.follow)
}

// look returns a command that shows the screen again after a moment.
func look(f *follower) tea.Cmd {
	return tea.Tick(glances, func(time.Time) tea.Msg { return glance{f} })
}

// followKey serves a key while output is shown.
func (m model) followKey(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "ctrl+c":
		m.follow.stop()
		return m, tea.Quit
	case "q", "esc":
		m.follow.stop()
		m.follow = nil
	}
	return m, nil
}
