// Governance: what is refused, with which reason, and what a job cannot see. Servers other than the default are configured to
// refuse.
import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { denied, doesNotMatch, equal, ok, until } from './check.mjs';

const shellTrue = { runtime: 'shell', code: 'true' };
const python = { runtime: 'python', code: 'pass' };

// Requests, the server that refuses them, and its reason.
const refused = [
  ['1 switched off', 'off', shellTrue, 'Runtime execution is disabled in configuration (runtime.enabled = false)'],
  ['2 runtime', 'narrow', { runtime: 'node', code: '1' }, 'Runtime "node" is not in the allowed runtimes list: [python, shell]'],
  ['3 executable of another runtime', 'default', { ...python, executable: 'node' }, 'Executable "node" is not compatible with runtime "python"'],
  ['3 executable by a path', 'default', { ...python, executable: './python3' }, /^Executable ".\/python3" is not compatible with runtime "python"/],
  ['3 executable not allowed', 'narrow', { ...shellTrue, executable: 'bash' }, 'Executable "bash" is not in the allowed executables list'],
  ['5 ..', 'default', { ...shellTrue, relativeCwd: 'a/../..' }, 'Relative CWD "a/../.." contains path traversal or absolute path components'],
  ['5 absolute', 'default', { ...shellTrue, relativeCwd: '/etc' }, 'Relative CWD "/etc" contains path traversal or absolute path components'],
  ['5 link out of the repository', 'default', { ...shellTrue, relativeCwd: 'out' }, /escapes repository root/],
  ['5 missing', 'default', { ...shellTrue, relativeCwd: 'nope' }, 'Working directory does not exist: nope'],
  ['6 timeout', 'narrow', { ...python, timeoutMs: 120_000 }, 'Requested timeout (120000ms) exceeds maximum (60000ms)'],
  ['7 a rule of the operator', 'narrow', { ...python, args: ['forbidden'] }, /no forbidden words/],
  ['order: 2 before 6', 'narrow', { runtime: 'node', code: '1', timeoutMs: 120_000 }, /^Runtime "node" is not/],
  ['order: 5 before 6', 'narrow', { ...python, relativeCwd: '..', timeoutMs: 120_000 }, /^Relative CWD/],
];

export const rows = [
  ...refused.map(([name, server, args, reason]) => ({
    name: `denied/${name}`,
    server,
    run: async ({ execute, dir }) => {
      if (!existsSync(join(dir, 'out'))) symlinkSync('/etc', join(dir, 'out'));
      denied(await execute(args), reason);
    },
  })),
  {
    name: 'denied/8 concurrency',
    server: 'narrow',
    run: async ({ execute, dir }) => {
      const busy = join(dir, 'busy');
      rmSync(busy, { recursive: true, force: true });
      const first = execute({ runtime: 'python', code: 'import os, time\nos.mkdir("busy")\nwhile os.path.exists("busy"): time.sleep(0.02)' });
      await until(busy, first);
      denied(await execute(python), 'Concurrency limit reached (1/1 active jobs)');
      rmSync(busy, { recursive: true });
      equal((await first).structuredContent.status, 'success');
      equal((await execute(python)).structuredContent.status, 'success');
    },
  },
  {
    name: 'environment/built from nothing',
    run: async ({ shell }) => {
      // The server was started with a secret in its environment. The job looks wherever it could be found.
      const r = await shell('env; cat /proc/*/environ | tr "\\0" "\\n"; set', { outputMode: 'summary', maxResponseLines: 1000 });
      equal(r.status, 'success');
      doesNotMatch(r.stdoutSummary, /hunter2|AWS_SECRET|SSH_AUTH_SOCK|SECRET_TOKEN/);
    },
  },
  {
    name: 'repository/a program in it is not used as an interpreter',
    run: async ({ shell, execute, dir }) => {
      mkdirSync(join(dir, 'bin'), { recursive: true });
      await shell('printf "#!/bin/sh\\necho fake\\n" > python3; chmod +x python3; cp python3 bin/');
      const r = (await execute({ runtime: 'python', code: 'print("real")', outputMode: 'summary' })).structuredContent;
      equal(r.stdoutSummary, 'real\n');
    },
  },
  {
    name: 'token/only its tools and repositories',
    only: 'http',
    run: async ({ connection, repo }) => {
      const reader = await connection('reader');
      ok(reader.tools.every((t) => t.name === 'runtime_query_output'), reader.tools.map((t) => t.name).join());
    },
  },
];
