// The page of corral serve. Whatever comes from the server is added as text, never as HTML: the policy of the page refuses the rest.
'use strict';

const $ = (id) => document.getElementById(id);

// el makes an element with attributes and children; children that are strings become text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
  return e;
}

// svg makes an element of a drawing.
function svg(tag, attributes, text) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// Numbers in words.

function duration(ms) {
  if (ms < 0) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function size(bytes) {
  if (bytes < 0) return '–';
  if (bytes < 1024) return `${bytes} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let n = bytes / 1024, u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${units[u]}`;
}

const cores = (n) => `${n < 10 ? n.toFixed(2) : n.toFixed(1)} CPU`;
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = (ms) => new Date(ms).toLocaleDateString([], { month: 'short', day: 'numeric' });
const moment = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : `${day(ms)}, ${clock(ms)}`);
const base = (path) => path.split('/').filter(Boolean).pop() || path;

// Talking to the server.

let me = null; // who has logged in, null: nobody

// LoggedOut is thrown when the server knows the browser no longer.
class LoggedOut extends Error {}

async function ask(path, options) {
  const r = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options });
  if (r.status === 401) throw new LoggedOut('not logged in');
  const answer = r.status === 204 ? {} : await r.json();
  if (!r.ok) throw new Error(answer.error || r.statusText);
  return answer;
}

const post = (path) => ask(path, { method: 'POST', headers: { 'X-Corral-Token': me.token } });

function notice(text) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
}

// A view is what main shows. Its streams end with it.
let view = { close() {} };

// stream opens a stream of events, which is closed while nobody looks at the tab: browsers allow few per server.
function stream(path, handlers) {
  let source = null, closed = false, fails = 0;
  const stop = () => { if (source) source.close(); source = null; };
  const start = () => {
    if (closed || source || document.hidden) return;
    source = new EventSource(path);
    source.onopen = () => { fails = 0; notice(''); };
    source.onerror = async () => {
      stop();
      if (closed) return;
      try { await ask('/api/me'); } catch (e) { if (e instanceof LoggedOut) return welcome(); }
      if (++fails > 1) notice('The connection to the server was lost. Trying again…');
      setTimeout(start, Math.min(1000 * fails, 10000));
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (e) => handle(JSON.parse(e.data), stop));
    }
  };
  const seen = () => (document.hidden ? stop() : start());
  document.addEventListener('visibilitychange', seen);
  start();
  return { close() { closed = true; stop(); document.removeEventListener('visibilitychange', seen); } };
}

// Running jobs.

// remember adds the state of a job to its samples. When there are many, every second one is dropped.
function remember(samples, job, at) {
  const ms = at - job.startedMs;
  if (!samples.length || ms > samples[samples.length - 1].atMs) samples.push({ atMs: ms, cpuMs: job.cpuMs, memoryBytes: job.memoryBytes });
  if (samples.length > 600) samples.splice(0, samples.length, ...samples.filter((_, n) => n % 2));
}

const what = (j) => [j.tool || 'corral run', j.runtime].filter(Boolean).join(' · ');

// A sparkline is a small curve of points [ms, value], without axes: the words beside it say how much it is.
function sparkline(kind, points, words) {
  if (points.length < 2) return null;
  const width = 88, height = 22, most = Math.max(...points.map((p) => p[1]), kind === 'memory' ? 1 : 0.1);
  const first = points[0][0], last = points[points.length - 1][0];
  const path = points.map((p, n) => `${n ? 'L' : 'M'}${(((p[0] - first) / (last - first)) * width).toFixed(1)} ${(1 + (1 - p[1] / most) * (height - 2)).toFixed(1)}`).join('');
  const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: `spark ${kind}`, role: 'img', 'aria-label': words });
  root.append(svg('path', { class: 'area', d: `${path}L${width} ${height}L0 ${height}Z` }), svg('path', { class: 'stroke', d: path }));
  return root;
}

// A filter hides the rows of a table that do not contain what a person types. It remembers that for each view.
const typed = {};
function filterBox(view, changed) {
  const input = el('input', { type: 'search', id: 'filter', class: 'push', placeholder: 'Filter', 'aria-label': 'Show rows that contain', autocomplete: 'off', spellcheck: 'false', maxlength: '200' });
  input.value = typed[view] || '';
  input.addEventListener('input', () => { typed[view] = input.value; changed(); });
  return input;
}

// filtered hides rows, and returns in words how many of the things there are.
function filtered(view, list, one, many, all) {
  const word = (typed[view] || '').toLowerCase();
  let shown = 0;
  for (const row of list.querySelectorAll('tbody tr')) {
    row.hidden = !row.textContent.toLowerCase().includes(word);
    if (!row.hidden) shown++;
  }
  const total = `${all} ${all === 1 ? one : many}`;
  return word && all ? `${shown} of ${total}` : total;
}

function table(names, rows) {
  const head = el('tr', {}, ...names.map(([name, kind]) => el('th', { scope: 'col', class: kind }, name)));
  return el('div', { class: 'panel' }, el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows)));
}

const empty = (title, ...more) => el('div', { class: 'panel empty' }, el('strong', {}, title), ...more);

// command shows what runs. The whole of it is for people who point at it: a line has room for the beginning.
const command = (text) => (text ? el('code', { class: 'command', title: text }, text) : el('span', { class: 'quietly' }, 'not known'));

function jobRow(j, at, samples) {
  const shares = rates(samples), now = shares.length ? cores(shares[shares.length - 1][1]) : '';
  return el('tr', { 'data-job': j.id },
    el('td', { class: 'first' }, el('a', { href: `#/job/${encodeURIComponent(j.id)}` }, j.id), el('small', {}, what(j))),
    el('td', { class: 'wide' }, command(j.command)),
    el('td', {}, el('span', { title: j.repo }, base(j.repo)), el('small', {}, j.principal || `user ${j.uid}`)),
    el('td', { class: 'num', 'data-name': 'for' }, duration(Math.max(0, at - j.startedMs))),
    el('td', { class: 'num', 'data-name': 'CPU' }, duration(j.cpuMs), el('small', {}, now), sparkline('cpu', shares, `CPU: ${now}`)),
    el('td', { class: 'num', 'data-name': 'memory' }, size(j.memoryBytes), el('small', {}, j.peakMemoryBytes < 0 ? '' : `peak ${size(j.peakMemoryBytes)}`),
      sparkline('memory', memories(samples), `Memory: ${size(j.memoryBytes)}`)),
  );
}

function showJobs(main) {
  const count = el('span', { class: 'count' }, 'Loading…'), list = el('div', {});
  let last = null, drawn = '';
  const series = new Map(); // samples by job id
  const draw = () => {
    if (!last) return;
    const all = last.jobs.length + last.more;
    const focused = document.activeElement && document.activeElement.closest('tr');
    const id = focused && list.contains(focused) ? focused.dataset.job : null;
    if (all > 0) {
      list.replaceChildren(table([['Job'], ['Command'], ['Repository'], ['Runs for', 'num'], ['CPU', 'num'], ['Memory', 'num']],
        last.jobs.map((j) => jobRow(j, last.atMs, series.get(j.id)))));
      if (last.more) list.append(el('p', { class: 'quietly' }, `${last.more} older ones are not shown.`));
    } else if (drawn !== 'none') {
      list.replaceChildren(empty('Nothing runs', 'A job appears here within a second of its start.'));
    }
    drawn = all > 0 ? '' : 'none';
    count.textContent = filtered('jobs', list, 'job', 'jobs', all);
    if (id) for (const row of list.querySelectorAll('tr')) if (row.dataset.job === id) row.querySelector('a').focus();
  };
  main.append(el('div', { class: 'head' }, el('h1', {}, 'Running jobs'), count, filterBox('jobs', draw)), list);
  return stream('/api/events', {
    jobs(e) {
      notice(e.error || '');
      if (e.error) return;
      if (e.samples) for (const [id, samples] of Object.entries(e.samples)) series.set(id, samples);
      const ids = new Set(e.jobs.map((j) => j.id));
      for (const id of series.keys()) if (!ids.has(id)) series.delete(id);
      for (const j of e.jobs) {
        if (!series.has(j.id)) series.set(j.id, []);
        remember(series.get(j.id), j, e.atMs);
      }
      last = e;
      draw();
    },
    end: welcome,
  });
}

// One job.

function facts(list) {
  return el('dl', { class: 'facts panel' }, ...list.filter(([, v]) => v !== '' && v !== null && v !== undefined)
    .map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

// rates turns samples of CPU time into CPUs in use between them.
function rates(samples) {
  const points = [];
  let before = { atMs: 0, cpuMs: 0 };
  for (const s of samples) {
    if (s.cpuMs < 0) continue;
    if (s.atMs > before.atMs) points.push([s.atMs, Math.max(0, s.cpuMs - before.cpuMs) / (s.atMs - before.atMs)]);
    before = s;
  }
  return points;
}

const memories = (samples) => samples.filter((s) => s.memoryBytes >= 0).map((s) => [s.atMs, s.memoryBytes]);

// A curve of points [ms, value].
function curve(kind, title, words) {
  const said = el('span', {}, ''), box = el('div', { class: `curve ${kind}` });
  const card = el('section', { class: 'panel card' }, el('div', { class: 'top' }, el('h2', {}, title), said), box);
  let points = [];
  const draw = () => {
    if (points.length < 2) {
      box.replaceChildren(el('p', {}, 'Too short to draw: a job is sampled once a second.'));
      return;
    }
    const width = Math.max(200, box.clientWidth), height = 150, left = 62, bottom = 20, top = 8;
    const last = points[points.length - 1][0], first = Math.min(points[0][0], last - 1);
    const most = Math.max(...points.map((p) => p[1]), kind === 'memory' ? 1 : 0.1) * 1.1;
    const x = (ms) => left + ((ms - first) / (last - first)) * (width - left - 4);
    const y = (v) => top + (1 - v / most) * (height - top - bottom);
    const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${title}: ${said.textContent}` });
    for (const part of [0, 0.5, 1]) {
      const at = y((most / 1.1) * part);
      root.append(svg('line', { class: 'grid', x1: left, x2: width, y1: at, y2: at }));
      root.append(svg('text', { x: left - 8, y: at + 4, 'text-anchor': 'end' }, part ? words((most / 1.1) * part) : '0'));
    }
    root.append(svg('text', { x: left, y: height - 2 }, duration(first)));
    root.append(svg('text', { x: width, y: height - 2, 'text-anchor': 'end' }, duration(last)));
    const path = points.map((p, n) => `${n ? 'L' : 'M'}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join('');
    root.append(svg('path', { class: 'area', d: `${path}L${x(last).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z` }));
    root.append(svg('path', { class: 'stroke', d: path }));
    box.replaceChildren(root);
  };
  const resized = new ResizeObserver(draw);
  resized.observe(box);
  return {
    card,
    set(list, text) { points = list; said.textContent = text; draw(); },
    close() { resized.disconnect(); },
  };
}

// A pane shows output. While somebody reads above the end, it stays where it is.
function pane(title) {
  const pre = el('pre', { tabindex: '0', 'aria-label': title, 'data-empty': 'Nothing yet.' });
  const said = el('span', { class: 'push' }, ''), top = el('div', { class: 'top' }, el('h2', {}, title), said);
  const limit = 1 << 20; // of characters
  return {
    card: el('section', { class: 'panel output' }, top, pre), top, pre, said,
    set(text, none) { pre.dataset.empty = none || 'Nothing.'; pre.textContent = text; },
    add(text) {
      const end = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
      if (pre.textContent.length + text.length > limit) pre.textContent = (pre.textContent + text).slice(-limit / 2);
      else pre.append(text);
      if (end) pre.scrollTop = pre.scrollHeight;
    },
  };
}

const left = (bytes) => `… ${size(bytes)} before this are not shown …\n`;

function lifeOf(moments) {
  if (moments.length < 2) return null;
  const items = moments.map((m, n) => {
    const next = moments[n + 1];
    return el('li', {}, el('b', {}, m.name), el('span', {}, clock(m.atMs) + (next ? ` · ${duration(next.atMs - m.atMs)}` : '')));
  });
  return el('section', { class: 'panel card life' }, el('h2', {}, 'Timeline'), el('ol', {}, ...items));
}

async function endJob(id) {
  const box = $('confirm');
  $('confirm-job').textContent = id;
  const yes = await new Promise((resolve) => {
    $('confirm-yes').onclick = () => { box.close(); resolve(true); };
    $('confirm-no').onclick = () => box.close();
    box.onclose = () => resolve(false);
    box.showModal();
    $('confirm-no').focus();
  });
  if (!yes) return;
  try { await post(`/api/jobs/${encodeURIComponent(id)}/end`); } catch (e) { failed(e); }
}

async function showJob(main, id) {
  const { job, samples } = await ask(`/api/jobs/${encodeURIComponent(id)}`);
  const badge = el('span', { class: 'badge running' }, 'running');
  const stopButton = el('button', { type: 'button', class: 'danger push', id: 'end' }, 'End job');
  stopButton.addEventListener('click', () => endJob(id));
  const cpu = curve('cpu', 'CPU', cores), memory = curve('memory', 'Memory', size), out = pane('Output');
  const about = el('div', {}), life = el('div', {});
  main.append(el('div', { class: 'head' }, el('h1', { class: 'mono' }, job.id), badge, el('span', { class: 'quietly' }, what(job)), stopButton),
    about, life, el('div', { class: 'pair' }, cpu.card, memory.card), out.card);

  let ended = false, whole = job.command; // events have the beginning of it alone
  const draw = (j, at) => {
    about.replaceChildren(facts([
      ['Command', j.command && el('code', {}, whole)], ['Repository', j.repo], ['Started by', j.principal || `user ${j.uid}`], ['Started', moment(j.startedMs)],
      ['Runs for', duration(Math.max(0, at - j.startedMs))], ['CPU time', duration(j.cpuMs)], ['Peak memory', size(j.peakMemoryBytes)],
    ]));
    const shares = rates(samples);
    cpu.set(shares, shares.length ? cores(shares[shares.length - 1][1]) : '');
    memory.set(memories(samples), size(j.memoryBytes));
  };
  draw(job, Date.now());

  const finish = () => {
    if (ended) return;
    ended = true;
    badge.className = 'badge';
    badge.textContent = 'ended';
    stopButton.hidden = true;
    if (job.handle) setTimeout(() => moveTo(job.handle, 20), 300);
  };
  // The output is stored a moment after the job has ended.
  const moveTo = async (handle, tries) => {
    if (view.id !== id) return;
    try {
      await ask(`/api/history/${encodeURIComponent(handle)}`);
      location.replace(`#/ended/${encodeURIComponent(handle)}`);
    } catch (e) {
      if (e instanceof LoggedOut) return failed(e);
      if (tries > 0) setTimeout(() => moveTo(handle, tries - 1), 500);
    }
  };
  const events = stream('/api/events', {
    jobs(e, stop) {
      notice(e.error || '');
      if (e.error) return;
      const now = e.jobs.find((j) => j.id === id);
      if (!now) { stop(); events.close(); return finish(); }
      remember(samples, now, e.atMs);
      draw(now, e.atMs);
    },
    end: welcome,
  });
  let output = { close() {} };
  if (job.handle) {
    let begun = false;
    output = stream(`/api/jobs/${encodeURIComponent(id)}/output`, {
      output(e) {
        if (!begun) out.set('', '');
        begun = true;
        out.add((e.lost ? left(e.lost) : '') + e.text);
      },
      end(e, stop) { stop(); output.close(); if (e.error) out.said.textContent = e.error; },
    });
    out.said.textContent = 'the last 64 KiB, as it is written';
    out.set('', 'Nothing yet.');
  } else {
    out.set('', 'The output of this job is not stored: it goes to the program that started the job.');
  }
  return { id, close() { events.close(); output.close(); cpu.close(); memory.close(); } };
}

// Jobs that have ended.

function ending(j) {
  if (j.status !== 'failure') return j.status;
  return j.signal || `exit ${j.exit}`;
}

const endingBadge = (j) => el('span', { class: `badge ${['success', 'failure', 'timeout', 'denied', 'refused', 'lost'].includes(j.status) ? j.status : ''}` }, ending(j));

function endedRow(j) {
  return el('tr', {},
    el('td', { class: 'first' }, el('a', { href: `#/ended/${encodeURIComponent(j.handle)}` }, j.id || j.handle), el('small', {}, what(j))),
    el('td', {}, endingBadge(j), el('small', {}, j.limit ? `limit: ${j.limit}` : '')),
    el('td', { class: 'wide' }, j.repo, el('small', {}, j.principal)),
    el('td', { class: 'num', 'data-name': 'took' }, duration(j.durationMs)),
    el('td', { class: 'num', 'data-name': 'output' }, size(j.bytes)),
    el('td', { class: 'num', 'data-name': 'ended' }, moment(j.endedMs)),
  );
}

// showList is a view of a table that is loaded again on request and, with every, every so many ms while somebody looks at it.
async function showList(main, { view, title, path, one, many, columns, row, none, every }) {
  const again = el('button', { type: 'button' }, 'Refresh');
  const count = el('span', { class: 'count' }, 'Loading…'), list = el('div', {});
  let all = 0, timer = 0, closed = false;
  const counted = () => { count.textContent = filtered(view, list, one, many, all); };
  main.append(el('div', { class: 'head' }, el('h1', {}, title), count, filterBox(view, counted), again), list);
  const load = async () => {
    try {
      const rows = Object.values(await ask(path))[0];
      if (closed) return;
      all = rows.length;
      list.replaceChildren(all ? table(columns, rows.map(row)) : empty(...none));
      counted();
    } catch (e) { if (!closed) failed(e); }
  };
  again.addEventListener('click', load);
  await load();
  if (every) timer = setInterval(() => { if (!document.hidden && !list.contains(document.activeElement)) load(); }, every);
  return { close() { closed = true; clearInterval(timer); } };
}

const showHistory = (main) => showList(main, {
  view: 'history', title: 'Ended jobs', path: '/api/history', one: 'job whose output is stored', many: 'jobs whose output is stored',
  columns: [['Job'], ['End'], ['Repository'], ['Took', 'num'], ['Output', 'num'], ['Ended', 'num']], row: endedRow,
  none: ['No output is stored', 'Jobs whose output is not stored are in the audit log alone.'],
});

function sessionRow(j) {
  return el('tr', {},
    el('td', { class: 'first' }, el('code', {}, j.id), el('small', {}, j.name)),
    el('td', {}, j.kept ? el('span', { class: 'badge' }, 'ended, changes kept') : el('span', { class: 'badge running' }, j.jobs === 1 ? '1 job' : `${j.jobs} jobs`)),
    el('td', { class: 'wide' }, el('span', { title: j.repo }, base(j.repo)), el('small', {}, j.workspace)),
    el('td', { class: 'num', 'data-name': 'layer' }, size(j.diskUsedBytes), el('small', {}, `of ${size(j.diskBytes)}`)),
    el('td', { class: 'num', 'data-name': 'opened' }, moment(j.openedMs)),
    el('td', { class: 'num', 'data-name': 'used' }, moment(j.usedMs)),
  );
}

const showSessions = (main) => showList(main, {
  view: 'sessions', title: 'Sessions', path: '/api/sessions', one: 'session', many: 'sessions', every: 2000,
  columns: [['Session'], ['State'], ['Repository'], ['Layer', 'num'], ['Opened', 'num'], ['Last used', 'num']], row: sessionRow,
  none: ['No session is open', 'Jobs of a session share what they write.'],
});

function deniedRow(d) {
  const log = me.audit && d.request && el('a', { href: `#/audit?${new URLSearchParams({ request: d.request })}` }, 'records');
  return el('tr', {},
    el('td', { class: 'num', 'data-name': 'at' }, moment(d.atMs)),
    el('td', {}, el('span', { class: 'badge denied' }, d.id ? 'refused' : 'denied'), el('small', { class: 'mono' }, d.id)),
    el('td', { class: 'name' }, d.principal || `user ${d.uid}`, el('small', {}, what(d))),
    el('td', {}, el('span', { title: d.repo }, base(d.repo)), el('small', {}, log || '')),
    el('td', { class: 'wide' }, d.reason),
  );
}

const showDenied = (main) => showList(main, {
  view: 'denied', title: 'Denied lately', path: '/api/denied', one: 'request', many: 'requests', every: 2000,
  columns: [['Time', 'num'], ['Decision'], ['By'], ['Repository'], ['Reason']], row: deniedRow,
  none: ['Nothing was denied lately', 'The last 16 requests that a policy denied, or the supervisor refused, appear here.'],
});

async function showEnded(main, handle) {
  const path = `/api/history/${encodeURIComponent(handle)}`;
  const j = await ask(path);
  const cpu = curve('cpu', 'CPU', cores), memory = curve('memory', 'Memory', size), out = pane('Output');
  main.append(el('div', { class: 'head' }, el('h1', { class: 'mono' }, j.id || j.handle), endingBadge(j), el('span', { class: 'quietly' }, what(j))),
    facts([
      ['Repository', j.repo], ['Directory', j.dir === '.' ? '' : j.dir], ['Started by', j.principal], ['Took', duration(j.durationMs)],
      ['CPU time', j.cpuMs < 0 ? '' : duration(j.cpuMs)], ['Peak memory', j.peakMemoryBytes < 0 ? '' : size(j.peakMemoryBytes)],
      ['Limit reached', j.limit], ['Kept until', moment(j.expiresMs)], ['Output', el('span', { class: 'mono' }, j.handle)],
    ]), lifeOf(j.life) || '', el('div', { class: 'pair' }, cpu.card, memory.card), out.card);
  const shares = rates(j.samples);
  cpu.set(shares, shares.length ? `at most ${cores(Math.max(...shares.map((p) => p[1])))}` : '');
  memory.set(memories(j.samples), j.peakMemoryBytes < 0 ? '' : `at most ${size(j.peakMemoryBytes)}`);

  const buttons = {};
  const show = async (name) => {
    for (const [other, b] of Object.entries(buttons)) b.setAttribute('aria-pressed', String(other === name));
    try {
      const { text, lost } = await ask(`${path}/${name}`);
      out.set((lost ? left(lost) : '') + text, 'The job wrote nothing here.');
      out.pre.scrollTop = out.pre.scrollHeight;
    } catch (e) { failed(e); }
  };
  const tabs = el('div', { class: 'tabs' });
  for (const [name, title, bytes] of [['stdout', 'Standard output', j.stdoutBytes], ['stderr', 'Standard error', j.stderrBytes]]) {
    buttons[name] = el('button', { type: 'button', 'aria-pressed': 'false' }, `${title}, ${size(bytes)}`);
    buttons[name].addEventListener('click', () => show(name));
    tabs.append(buttons[name]);
  }
  out.top.insertBefore(tabs, out.said);
  await show(j.stdoutBytes === 0 && j.stderrBytes > 0 ? 'stderr' : 'stdout');
  return { close() { cpu.close(); memory.close(); } };
}

// The audit log.

const fields = [
  ['text', 'Contains', ''], ['user', 'User', 'name or number'], ['repo', 'Repository', 'id or path'], ['principal', 'Principal', 'token:ci'],
  ['tool', 'Tool', 'runtime_execute'], ['request', 'Request', 'trace id'], ['since', 'Since', '36h or 2026-11-21'], ['until', 'Until', ''],
];
const outcomes = ['', 'success', 'failure', 'timeout', 'cancelled', 'lost', 'refused', 'denied'];

// recordRow is a record in columns. All that the log says of it is behind its number.
function recordRow(r) {
  const bad = ['failure', 'timeout', 'denied', 'refused', 'lost'].includes(r.outcome);
  return el('tr', {},
    el('td', { class: 'num', 'data-name': 'at' }, moment(r.atMs)),
    el('td', {}, el('b', {}, r.event), el('small', {}, r.outcome && r.outcome !== r.event ? el('span', { class: `badge ${bad ? 'failure' : r.outcome === 'success' ? 'success' : ''}` }, r.outcome) : '')),
    el('td', { class: 'mono name' }, r.id),
    el('td', { class: r.user && 'name' }, r.user, el('small', {}, r.principal)),
    el('td', {}, el('span', { title: r.repo }, base(r.repo))),
    el('td', { class: 'name' }, r.tool || r.id ? what(r) : '', r.command && el('code', { class: 'command', title: r.command }, r.command)),
    el('td', { class: 'wide' }, r.result, el('details', {}, el('summary', {}, `record ${r.seq}`), el('code', {}, r.text))),
    el('td', { class: 'num', 'data-name': r.tookMs < 0 ? null : 'took' }, r.tookMs < 0 ? '' : duration(r.tookMs)),
  );
}

async function showAudit(main, _, query) {
  const count = el('span', { class: 'count' }, ''), list = el('div', {}), inputs = {};
  const form = el('form', { class: 'panel', id: 'search' });
  for (const [name, title, hint] of fields) {
    inputs[name] = el('input', { name, placeholder: hint, autocomplete: 'off', spellcheck: 'false', maxlength: '1000' });
    form.append(el('label', {}, title, inputs[name]));
  }
  inputs.outcome = el('select', { name: 'outcome' }, ...outcomes.map((o) => el('option', { value: o }, o || 'any')));
  form.append(el('label', {}, 'Outcome', inputs.outcome), el('button', { class: 'primary' }, 'Search'));
  main.append(el('div', { class: 'head' }, el('h1', {}, 'Audit log'), count), form, list);
  for (const [name, value] of query) if (inputs[name]) inputs[name].value = value;
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    const q = new URLSearchParams();
    for (const [name, input] of Object.entries(inputs)) if (input.value) q.set(name, input.value);
    const next = `#/audit?${q}`;
    if (next === location.hash || (next === '#/audit?' && location.hash === '#/audit')) route(); else location.hash = next;
  });
  count.textContent = 'Searching…';
  try {
    const { records, whole } = await ask(`/api/audit?${query}`);
    count.textContent = `${records.length === 200 ? 'the newest 200' : records.length} ${records.length === 1 ? 'record' : 'records'}${whole ? '' : ' in the last 64 MiB of the log'}`;
    list.replaceChildren(records.length ? table([['Time', 'num'], ['Event'], ['Job'], ['User'], ['Repository'], ['Program'], ['Result'], ['Took', 'num']], records.map(recordRow))
      : empty('No record matches'));
    list.classList.add('records');
  } catch (e) {
    count.textContent = '';
    failed(e);
  }
  return { close() {} };
}

// Which view.

const views = { jobs: showJobs, job: showJob, sessions: showSessions, history: showHistory, ended: showEnded, denied: showDenied, audit: showAudit };

function failed(e) {
  if (e instanceof LoggedOut) return welcome();
  notice(e.message);
}

// welcome is shown to people who have not logged in.
function welcome() {
  me = null;
  view.close();
  view = { close() {} };
  for (const id of ['views', 'who']) $(id).hidden = true;
  $('main').replaceChildren(empty('You are not logged in', 'Open a new link to this page: it can be opened once, within five minutes. Whoever has a token makes one with ', el('code', {}, 'POST /page'), ' of corral serve.'));
}

let turn = 0;
async function route() {
  if (!me) return;
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, argument] = path.split('/');
  const show = views[name] || showJobs, mine = ++turn;
  view.close();
  view = { close() {} };
  notice('');
  for (const a of document.querySelectorAll('nav a')) {
    const current = a.dataset.view === ({ job: 'jobs', ended: 'history' }[name] || (views[name] ? name : 'jobs'));
    if (current) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
  }
  const main = el('div', {});
  $('main').replaceChildren(main);
  try {
    const next = await show(main, decodeURIComponent(argument || ''), new URLSearchParams(query));
    if (mine === turn) view = next; else next.close();
  } catch (e) {
    if (mine !== turn) return;
    if (!(e instanceof LoggedOut) && (name === 'job' || name === 'ended')) main.replaceChildren(empty(e.message, el('a', { href: '#/history' }, 'Ended jobs')));
    else failed(e);
  }
}

async function begin() {
  const link = location.hash.match(/^#login=([0-9a-f]+)$/);
  if (link) {
    history.replaceState(null, '', '/'); // before anything else: the token stays in no history
    try {
      await ask('/api/login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token: link[1] }) });
    } catch (e) { notice(e.message); }
  }
  try { me = await ask('/api/me'); } catch (e) { welcome(); if (!(e instanceof LoggedOut)) notice(e.message); return; }
  notice('');
  $('principal').textContent = me.principal + (me.operator ? ', operator' : '');
  $('audit-link').hidden = !me.audit;
  for (const id of ['views', 'who']) $(id).hidden = false;
  route();
}

$('logout').addEventListener('click', async () => {
  try { await post('/api/logout'); } catch (e) { /* the cookie is not valid any more */ }
  welcome();
});
$('skip').addEventListener('click', (e) => { e.preventDefault(); $('main').focus(); });
addEventListener('hashchange', () => (/^#login=/.test(location.hash) ? begin() : route()));
begin();
