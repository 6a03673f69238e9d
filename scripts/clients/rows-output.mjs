// How much of a job's output a reply shows and the store keeps, and sdl.runtime.queryOutput.
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deepEqual, equal, fails, handlePattern, lines, match, ok, text } from './check.mjs';

const summary = { outputMode: 'summary' };

// numbers is a script that writes "line 1" to "line N" to standard output, or to standard error.
const numbers = (n, to = '') => `i=0; while [ $i -lt ${n} ]; do i=$((i+1)); echo "line $i"; done ${to}\n`;

const keep = async (shell, code, args) => {
  const r = await shell(code, args);
  match(r.artifactHandle, handlePattern);
  return r.artifactHandle;
};

const wholeOf = (q) => q.excerpts.map((e) => e.content).join('\n');

export const rows = [
  {
    name: 'minimal/counts and no text',
    run: async ({ shell }) => {
      const r = await shell('printf "a\\nb"; printf "c\\n" >&2');
      equal(r.outputLines, 3);
      equal(r.outputBytes, 5);
      for (const key of ['stdoutSummary', 'stderrSummary', 'excerpts']) equal(r[key], undefined, key);
      equal((await shell('true')).outputLines, 0);
    },
  },
  {
    name: 'summary/all that fits',
    run: async ({ shell }) => {
      const r = await shell(numbers(10) + numbers(2, '>&2'), { ...summary, maxResponseLines: 10 });
      equal(r.stdoutSummary, lines(10));
      equal(r.stderrSummary, lines(2));
      equal(r.excerpts, undefined);
    },
  },
  {
    name: 'summary/head and tail',
    run: async ({ shell }) => {
      const r = await shell(numbers(40) + numbers(40, '>&2'), { ...summary, maxResponseLines: 11 });
      const out = r.stdoutSummary.trimEnd().split('\n');
      deepEqual(out, ['line 1', 'line 2', 'line 3', 'line 4', 'line 5', '', '... (29 lines omitted) ...', '',
        'line 35', 'line 36', 'line 37', 'line 38', 'line 39', 'line 40']);
      deepEqual(r.stderrSummary.trimEnd().split('\n'), ['line 39', 'line 40']);
    },
  },
  {
    name: 'summary/a hundred lines by default',
    run: async ({ shell }) => {
      match((await shell(numbers(101), summary)).stdoutSummary, /\n\n\.\.\. \(1 lines omitted\) \.\.\.\n\n/);
      equal((await shell(numbers(100), summary)).stdoutSummary, lines(100));
    },
  },
  {
    name: 'summary/excerpts of the terms',
    run: async ({ shell }) => {
      const r = await shell(numbers(40) + 'echo "Ein FEHLER" >&2', { ...summary, queryTerms: ['LINE 20', 'fehler'] });
      deepEqual(r.excerpts[0], {
        lineStart: 17, lineEnd: 23, source: 'stdout', content: lines(40).split('\n').slice(16, 23).join('\n'),
      });
      deepEqual(r.excerpts[1], { lineStart: 1, lineEnd: 1, source: 'stderr', content: 'Ein FEHLER' });
      equal(r.excerpts.length, 2);
    },
  },
  {
    name: 'summary/no match falls back to the first ten lines, and says so',
    run: async ({ shell }) => {
      const r = await shell(numbers(40), { ...summary, queryTerms: ['nowhere'] });
      equal(r.excerpts.length, 1);
      deepEqual([r.excerpts[0].lineStart, r.excerpts[0].lineEnd, r.excerpts[0].fallback], [1, 10, true]);
    },
  },
  {
    name: 'intent/excerpts only',
    run: async ({ shell }) => {
      const args = { outputMode: 'intent', queryTerms: ['line 7'] };
      const r = await shell(numbers(9), args);
      deepEqual(r.excerpts.map((e) => [e.lineStart, e.lineEnd]), [[4, 9]]);
      equal(r.stdoutSummary, undefined);
      deepEqual((await shell('echo nothing of it', args)).excerpts, []);
    },
  },
  {
    name: 'intent/terms are literal, and at most ten excerpts',
    run: async ({ shell }) => {
      const r = await shell(numbers(400) + 'echo "a.*b"', { outputMode: 'intent', queryTerms: ['0'] });
      equal(r.excerpts.length, 10);
      deepEqual((await shell(numbers(5), { outputMode: 'intent', queryTerms: ['l.*e'] })).excerpts, []);
    },
  },
  {
    name: 'summary/long lines',
    run: async ({ shell }) => {
      const r = await shell(`printf '%0600d\\n' 0; printf 'ä%.0s' {1..501}; echo; printf '%0500d' 0`, summary);
      const [zeros, umlauts, exact] = r.stdoutSummary.split('\n');
      equal(zeros, `${'0'.repeat(500)}… (+100) [truncated]`);
      equal(umlauts, `${'ä'.repeat(500)}… (+1) [truncated]`);
      equal(exact, '0'.repeat(500));
    },
  },
  {
    name: 'summary/what is no UTF-8',
    run: async ({ shell, query }) => {
      const r = await shell(`printf 'a\\377b\\n'`, summary);
      equal(r.stdoutSummary, 'a\ufffdb\n');
      const q = (await query({ artifactHandle: r.artifactHandle, queryTerms: ['b'] })).structuredContent;
      equal(wholeOf(q), 'a\ufffdb');
      equal(q.totalBytes, 4);
    },
  },
  {
    name: 'summary/secrets are taken out before anybody sees them',
    run: async ({ shell, query }) => {
      const code = `echo 'id AKIA${'QWERTYUIOPASDFGH'} end'; echo 'token ghp_${'aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5'}'`;
      const r = await shell(code, summary);
      match(r.stdoutSummary, /^id \[REDACTED:aws-key\] end\n/);
      match(r.stdoutSummary, /token \[REDACTED:github-token\]/);
      const q = (await query({ artifactHandle: r.artifactHandle, queryTerms: ['token', 'id'] })).structuredContent;
      match(wholeOf(q), /\[REDACTED:aws-key\]/);
    },
  },
  {
    name: 'truncation/totals are real, head and tail are kept',
    run: async ({ shell }) => {
      const r = await shell(`echo first; head -c 67108864 /dev/zero | tr '\\0' '\\n'; echo last`, { ...summary, timeoutMs: 60_000 });
      equal(r.truncation.totalStdoutBytes, 67108864 + 11);
      equal(r.truncation.stdoutTruncated, true);
      equal(r.truncation.stderrTruncated, false);
      match(r.stdoutSummary, /^first\n/);
      match(r.stdoutSummary, /last\n$/);
    },
  },
  {
    name: 'text/not said twice when it is large',
    run: async ({ execute }) => {
      const reply = await execute({ runtime: 'shell', code: `printf '%0400d\\n' {1..400}`, ...summary, maxResponseLines: 1000 });
      const r = reply.structuredContent;
      equal(r.stdoutSummary.length, 400 * 401);
      const t = text(reply);
      ok(t.length < 4096, `${t.length} characters`);
      ok(t.includes('success') && t.includes(r.artifactHandle) && t.includes('400'), t);
    },
  },
  {
    name: 'audit hash/is of the request',
    run: async ({ shell }) => {
      const hash = async (code, args) => (await shell(code, args)).policyDecision.auditHash;
      const one = await hash('true');
      equal(await hash('true'), one);
      const others = [await hash('true #'), await hash('true', { args: ['x'] }), await hash('true', { timeoutMs: 5000 })];
      equal(new Set([one, ...others]).size, 4);
    },
  },
  {
    name: 'artifact/not kept when not asked for',
    run: async ({ shell }) => equal((await shell('echo x', { persistOutput: false })).artifactHandle, null),
  },
  {
    name: 'query/match with context',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100) + 'echo LINE 50 too >&2');
      const q = (await query({ artifactHandle, queryTerms: ['line 50'], contextLines: 1 })).structuredContent;
      equal(q.artifactHandle, artifactHandle);
      equal(q.matchStatus, 'matched');
      deepEqual(q.searchedStreams, ['stdout', 'stderr']);
      equal(q.totalLines, 101);
      equal(q.totalBytes, Buffer.byteLength(lines(100)) + 12);
      deepEqual(q.excerpts, [
        { lineStart: 49, lineEnd: 51, source: 'stdout', content: 'line 49\nline 50\nline 51' },
        { lineStart: 1, lineEnd: 1, source: 'stderr', content: 'LINE 50 too' },
      ]);
    },
  },
  {
    name: 'query/one stream, at most maxExcerpts, no context',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100) + 'echo line >&2');
      const q = (await query({ artifactHandle, queryTerms: ['5'], stream: 'stdout', maxExcerpts: 2, contextLines: 0 })).structuredContent;
      deepEqual(q.searchedStreams, ['stdout']);
      deepEqual(q.excerpts.map((e) => [e.lineStart, e.lineEnd]), [[5, 5], [15, 15]]);
    },
  },
  {
    name: 'query/no match',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100));
      const q = (await query({ artifactHandle, queryTerms: ['nowhere'], maxExcerpts: 4 })).structuredContent;
      equal(q.matchStatus, 'noMatchFallback');
      match(wholeOf(q), /^line 1\nline 2\nline 3\nline 4$/);
    },
  },
  {
    name: 'query/range of lines',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100));
      const range = async (startLine, endLine) =>
        (await query({ artifactHandle, lineRange: { stream: 'stdout', startLine, endLine } })).structuredContent;
      const q = await range(42, 44);
      equal(q.matchStatus, 'lineRange');
      equal(wholeOf(q), 'line 42\nline 43\nline 44');
      equal(wholeOf(await range(99, 200)), 'line 99\nline 100');
    },
  },
  {
    name: 'query/terms within a range of lines',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100));
      const lineRange = { stream: 'stdout', startLine: 40, endLine: 44 };
      const q = (await query({ artifactHandle, lineRange, queryTerms: ['2'], contextLines: 0 })).structuredContent;
      equal(q.matchStatus, 'lineRange');
      deepEqual(q.excerpts.map((e) => [e.lineStart, e.lineEnd]), [[40, 44], [42, 42]]);
      fails(await query({ artifactHandle, lineRange, stream: 'stderr' }), 'INVALID_REQUEST', /stream/);
      fails(await query({ artifactHandle, lineRange, maxExcerpts: 3 }), 'INVALID_REQUEST', /maxExcerpts/);
      fails(await query({ artifactHandle, lineRange, contextLines: 4 }), 'INVALID_REQUEST', /contextLines/);
      equal((await query({ artifactHandle, lineRange, maxExcerpts: 10, contextLines: 3 })).structuredContent.matchStatus, 'lineRange');
    },
  },
  {
    name: 'query/errors',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, 'echo x');
      fails(await query({ artifactHandle }), 'INVALID_REQUEST', /queryTerms/);
      fails(await query({ artifactHandle, queryTerms: [] }), 'INVALID_REQUEST', /queryTerms/);
      fails(await query({ artifactHandle, queryTerms: ['x'], lines: 3 }), 'INVALID_REQUEST', /lines/);
      fails(await query({ artifactHandle: '../../etc/passwd', queryTerms: ['x'] }), 'INVALID_REQUEST', /artifactHandle/);
      fails(await query({ artifactHandle, queryTerms: ['x'], contextLines: 21 }), 'INVALID_REQUEST', /contextLines/);
      fails(await query({ artifactHandle, queryTerms: ['x'], maxExcerpts: 0 }), 'INVALID_REQUEST', /maxExcerpts/);
      fails(await query({ artifactHandle, lineRange: { stream: 'stdout', startLine: 3, endLine: 2 } }), 'INVALID_REQUEST', /lineRange|endLine/);
      fails(await query({ artifactHandle: `${artifactHandle.slice(0, -1)}${artifactHandle.endsWith('0') ? 1 : 0}`, queryTerms: ['x'] }), 'NOT_FOUND');
    },
  },
  {
    name: 'query/fuzzy finds other forms, and typos',
    run: async ({ shell, query }) => {
      const artifactHandle = await keep(shell, numbers(100) + 'echo connection refused by quagga-db\n' + numbers(100));
      const fuzzy = async (more) => query({ artifactHandle, match: 'fuzzy', contextLines: 0, maxExcerpts: 1, ...more });
      for (const term of ['quagga', 'qagga', 'refusing connections']) {
        const q = (await fuzzy({ queryTerms: [term] })).structuredContent;
        equal(q.matchStatus, 'matched');
        deepEqual(q.excerpts.map((e) => [e.lineStart, e.lineEnd]), [[101, 101]]);
      }
      equal((await fuzzy({ queryTerms: ['xylophone'] })).structuredContent.matchStatus, 'noMatchFallback');
      fails(await fuzzy({ queryTerms: ['x'], lineRange: { startLine: 1, endLine: 2 } }), 'INVALID_REQUEST', /match/);
    },
  },
  {
    name: 'query/what was changed on the disk is not shown',
    run: async ({ shell, query, state }) => {
      const artifactHandle = await keep(shell, 'echo x');
      const [file] = globSync(join(state, '**', artifactHandle, 'stdout.gz'));
      const bytes = readFileSync(file);
      bytes[bytes.length - 5] ^= 1; // in the checksum at the end of gzip
      writeFileSync(file, bytes);
      fails(await query({ artifactHandle, queryTerms: ['x'] }), 'CORRUPT');
    },
  },
  {
    name: 'query/after its time',
    run: async ({ shell, query, state }) => {
      const artifactHandle = await keep(shell, 'echo x');
      const [file] = globSync(join(state, '**', artifactHandle, 'manifest.json'));
      const manifest = JSON.parse(readFileSync(file, 'utf8'));
      ok(Date.parse(manifest.expiresAt) - Date.parse(manifest.createdAt) === 24 * 3600 * 1000, manifest.expiresAt);
      manifest.expiresAt = manifest.createdAt; // as if its retention time had passed
      writeFileSync(file, JSON.stringify(manifest));
      fails(await query({ artifactHandle, queryTerms: ['x'] }), 'EXPIRED');
    },
  },
  {
    name: 'query/a foreign artifact is not there',
    only: 'http',
    run: async ({ shell, connection }) => {
      const artifactHandle = await keep(shell, 'echo mine');
      const other = await connection('stranger');
      fails(await other.call('runtime_query_output', { artifactHandle, queryTerms: ['mine'] }), 'NOT_FOUND');
    },
  },
];
