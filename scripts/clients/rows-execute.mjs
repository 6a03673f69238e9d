// sdl.runtime.execute: its input, how programs end, and their limits while they run.
import { readFileSync, writeFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { equal, fails, handlePattern, match, ok, rejects, text, until, wait } from './check.mjs';

// Arguments that the tool refuses, and what the message must name.
const refused = [
  ['unknown key', { code: 'true', timeout: 5 }, /timeout/],
  ['unknown key in other letters', { code: 'true', repoID: 'x' }, /repoID/],
  ['neither code nor args', {}, 'code or args is required'],
  ['shell, neither', { args: [] }, 'code or args is required'],
  ['no repoId', { repoId: undefined, code: 'true' }, /repoId/],
  ['repoId of 129', { repoId: 'a'.repeat(129), code: 'true' }, /repoId/],
  ['repoId, a number', { repoId: 7, code: 'true' }, /repoId/],
  ['unknown runtime', { runtime: 'cobol', code: 'true' }, /runtime/],
  ['101 args', { args: Array(101).fill('x') }, /args/],
  ['NUL in args', { args: ['-c', 'a\0b'] }, /args/],
  ['args, a string', { args: '-c true' }, /args/],
  ['code above 1 MiB', { code: '#'.repeat((1 << 20) + 1) }, /code/],
  ['stdin above 512 KiB', { code: 'true', stdin: 'x'.repeat((512 << 10) + 1) }, /stdin/],
  ['NUL in relativeCwd', { code: 'true', relativeCwd: 'a\0b' }, /relativeCwd/],
  ['timeoutMs 99', { code: 'true', timeoutMs: 99 }, /timeoutMs/],
  ['timeoutMs 600001', { code: 'true', timeoutMs: 600_001 }, /timeoutMs/],
  ['timeoutMs 1000.5', { code: 'true', timeoutMs: 1000.5 }, /timeoutMs/],
  ['11 queryTerms', { code: 'true', queryTerms: Array(11).fill('x') }, /queryTerms/],
  ['maxResponseLines 9', { code: 'true', maxResponseLines: 9 }, /maxResponseLines/],
  ['maxResponseLines 1001', { code: 'true', maxResponseLines: 1001 }, /maxResponseLines/],
  ['persistOutput, a string', { code: 'true', persistOutput: 'no' }, /persistOutput/],
  ['outputMode', { code: 'true', outputMode: 'everything' }, /outputMode/],
];

const summary = { outputMode: 'summary' };

export const rows = [
  ...refused.map(([name, args, message]) => ({
    name: `input/${name}`,
    run: async ({ execute }) => fails(await execute({ runtime: 'shell', ...args }), 'INVALID_REQUEST', message),
  })),
  {
    name: 'input/unknown repository',
    run: async ({ execute }) =>
      fails(await execute({ repoId: 'nope', runtime: 'shell', code: 'true' }), 'NOT_FOUND', 'Repository nope not found'),
  },
  {
    name: 'input/at its bounds',
    run: async ({ shell }) => {
      const code = 'wc -c; echo $#\n#';
      const r = await shell(code.padEnd(1 << 20, '#'), {
        ...summary, args: Array(100).fill('x'), stdin: 'x'.repeat(512 << 10), timeoutMs: 60_000, queryTerms: Array(10).fill('x'),
        maxResponseLines: 1000,
      });
      equal(r.stdoutSummary, '524288\n100\n');
    },
  },
  {
    name: 'input/code with args',
    run: async ({ shell }) =>
      equal((await shell(`printf '<%s>' "$@"`, { ...summary, args: ['a b', '', 'ä€𝄞', '--', '$(x)'] })).stdoutSummary, '<a b><><ä€𝄞><--><$(x)>'),
  },
  {
    name: 'input/args without code',
    run: async ({ execute }) => {
      const r = (await execute({ runtime: 'python', args: ['-c', 'print(6 * 7)'], ...summary })).structuredContent;
      equal(r.stdoutSummary, '42\n');
    },
  },
  {
    name: 'input/stdin',
    run: async ({ shell }) => {
      equal((await shell('cat', { ...summary, stdin: 'one\ntwo' })).stdoutSummary, 'one\ntwo');
      equal((await shell('cat; echo end', summary)).stdoutSummary, 'end\n');
    },
  },
  {
    name: 'input/relativeCwd',
    run: async ({ shell, dir }) => {
      mkdirSync(join(dir, 'sub/dir'), { recursive: true });
      equal((await shell('pwd', { ...summary, relativeCwd: 'sub/dir' })).stdoutSummary, `${dir}/sub/dir\n`);
      equal((await shell('pwd', { ...summary, relativeCwd: '.' })).stdoutSummary, `${dir}\n`);
    },
  },
  {
    name: 'input/executable',
    run: async ({ execute }) => {
      const r = (await execute({ runtime: 'shell', executable: 'sh', code: 'echo $0', ...summary })).structuredContent;
      equal(r.status, 'success');
    },
  },
  {
    name: 'run/languages',
    run: async ({ execute }) => {
      for (const [runtime, code] of [['python', 'print("hé")'], ['perl', 'print "hé\n"'], ['shell', 'echo hé']]) {
        const r = (await execute({ runtime, code, ...summary })).structuredContent;
        equal(r.stdoutSummary, 'hé\n', runtime);
      }
    },
  },
  {
    name: 'run/writes through, and the next job sees it',
    run: async ({ shell, dir }) => {
      await shell('echo kept > kept.txt');
      equal(readFileSync(join(dir, 'kept.txt'), 'utf8'), 'kept\n');
      equal((await shell('cat kept.txt', summary)).stdoutSummary, 'kept\n');
    },
  },
  {
    name: 'status/success',
    run: async ({ execute }) => {
      const reply = await execute({ runtime: 'shell', code: 'echo out; echo err >&2' });
      const r = reply.structuredContent;
      ok(!reply.isError);
      equal(r.status, 'success');
      equal(r.exitCode, 0);
      equal(r.signal, null);
      ok(Number.isInteger(r.durationMs) && r.durationMs >= 0);
      match(r.artifactHandle, handlePattern);
      equal(JSON.stringify(r.truncation), JSON.stringify({
        stdoutTruncated: false, stderrTruncated: false, totalStdoutBytes: 4, totalStderrBytes: 4,
      }));
      match(r.policyDecision.auditHash, /^[0-9a-f]{64}$/);
      equal(r.policyDecision.deniedReasons, undefined);
      for (const key of ['wallMs', 'cpuMs', 'peakMemoryBytes', 'peakPids']) ok(r.usage[key] >= 0, `usage.${key}`);
      equal(r.limit, undefined);
      equal(JSON.stringify(JSON.parse(text(reply))), JSON.stringify(r));
    },
  },
  {
    name: 'status/failure',
    run: async ({ execute }) => {
      const reply = await execute({ runtime: 'shell', code: 'exit 3' });
      ok(!reply.isError, 'a failure is a result');
      equal(reply.structuredContent.status, 'failure');
      equal(reply.structuredContent.exitCode, 3);
    },
  },
  {
    name: 'status/signal',
    run: async ({ shell }) => {
      const r = await shell('kill -TERM $$');
      equal(r.status, 'failure');
      equal(r.exitCode, null);
      equal(r.signal, 'SIGTERM');
    },
  },
  {
    name: 'status/timeout keeps what was written, and what holds a pipe is not waited for',
    run: async ({ execute }) => {
      const started = performance.now();
      const reply = await execute({
        runtime: 'shell', code: 'echo early; setsid sleep 600 & sleep 600', timeoutMs: 800, outputMode: 'summary',
      });
      const took = performance.now() - started;
      const r = reply.structuredContent;
      ok(!reply.isError, 'a timeout is a result');
      equal(r.status, 'timeout');
      equal(r.exitCode, null);
      equal(r.stdoutSummary, 'early\n');
      ok(r.durationMs >= 800, `${r.durationMs} ms`);
      ok(took < 60_000, `${took} ms`); // the process with the pipe sleeps for ten minutes; the contract's 250 ms is for benchmarks
    },
  },
  {
    name: 'status/a reply is the end of all that the job started',
    run: async ({ shell, dir }) => {
      const beat = join(dir, 'beat');
      await shell(`setsid bash -c 'while :; do date +%N > beat; done' >/dev/null 2>&1 & while ! [ -s beat ]; do :; done`);
      await stands(beat);
    },
  },
  {
    name: 'status/memory limit',
    run: async ({ execute }) => {
      const r = (await execute({ runtime: 'python', code: 'b = []\nwhile True: b.append(b"x" * (64 << 20))' })).structuredContent;
      equal(r.status, 'failure');
      equal(r.limit, 'memory');
      equal(r.signal, 'SIGKILL');
    },
  },
  {
    name: 'status/missing interpreter',
    run: async ({ execute, absent }) => {
      const reply = await execute({ ...absent, code: '1', ...summary });
      const r = reply.structuredContent;
      ok(!reply.isError);
      equal(r.status, 'failure');
      match(r.message ?? r.stderrSummary, new RegExp(`${absent.executable}.*/usr`, 's'));
      ok(text(reply).includes(absent.executable));
    },
  },
  {
    name: 'cancel/kills the job',
    run: async ({ execute, dir }) => {
      const beat = join(dir, 'cancelled');
      rmSync(beat, { force: true });
      const cancel = new AbortController();
      const reply = execute({ runtime: 'shell', code: 'while :; do date +%N > cancelled; done' }, { signal: cancel.signal });
      const refusal = rejects(reply);
      await until(beat, reply);
      cancel.abort('enough');
      await refusal;
      await wait(500); // as the contract says
      await stands(beat);
    },
  },
  {
    name: 'cancel/others go on',
    run: async ({ shell, execute, dir }) => {
      writeFileSync(join(dir, 'go'), '');
      const cancel = new AbortController();
      const started = join(dir, 'started');
      rmSync(started, { force: true });
      const gone = rejects(execute({ runtime: 'shell', code: 'sleep 600' }, { signal: cancel.signal }));
      const other = shell('touch started; while [ -e go ]; do sleep 0.02; done; echo done', summary);
      await until(started, other);
      cancel.abort();
      await gone;
      rmSync(join(dir, 'go'));
      equal((await other).stdoutSummary, 'done\n');
    },
  },
  {
    name: 'progress',
    slow: true,
    run: async ({ execute }) => {
      const seen = [];
      const reply = await execute({ runtime: 'shell', code: 'echo begun; sleep 11; echo end', ...summary }, {
        onprogress: (p) => seen.push(p),
        timeout: 60_000,
      });
      equal(reply.structuredContent.stdoutSummary, 'begun\nend\n');
      ok(seen.length >= 1, 'none in 11 s');
      for (const [i, p] of seen.entries()) {
        ok(i === 0 || p.progress > seen[i - 1].progress, 'it must grow');
        match(p.message, /6 B|6 bytes/);
      }
    },
  },
];

// stands waits for longer than a process would need to write to file once more, and checks that none has.
async function stands(file) {
  const before = readFileSync(file, 'utf8');
  await wait(300);
  equal(readFileSync(file, 'utf8'), before, `${file} is still written to`);
}
