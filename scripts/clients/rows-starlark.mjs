// starlark_run: a program reads its input, its errors, and its determinism.
import { accepts, deepEqual, equal, fails, match, ok, text } from './check.mjs';

// Arguments, and whether the published input schema must accept them.
const inputs = [
  [{ source: '' }, true],
  [{ source: 'x', input: 'y', limits: {}, caps: {} }, true],
  [{}, false],
  [{ source: 1 }, false],
  [{ source: 'x', repoId: 'a' }, false],
  [{ source: 'x', caps: { net: true } }, false],
  [{ source: 'x', caps: [] }, false],
  [{ source: 'x', limits: { wall_ms: 1, output_kb: 1 } }, true],
  [{ source: 'x', limits: { wall_ms: 60_000, output_kb: 1024 } }, true],
  [{ source: 'x', limits: { wall_ms: 0 } }, false],
  [{ source: 'x', limits: { wall_ms: 60_001 } }, false],
  [{ source: 'x', limits: { output_kb: 1025 } }, false],
  [{ source: 'x', limits: { memory_mb: 1 } }, false],
];

// Programs, their input, and the code and message of their error.
const errors = [
  ['a mistake', { source: 'x = 1 // 0' }, 'EVAL_ERROR', 'floored division by zero'],
  ['no Starlark', { source: 'import os' }, 'EVAL_ERROR', /^got import/],
  ['time', { source: 'while True: pass', limits: { wall_ms: 100 } }, 'TIMEOUT', 'the script did not end within 100 ms'],
  ['memory', { source: 'x = [0] * 1000000000', limits: { wall_ms: 20_000 } }, 'MEMORY_LIMIT', 'the script needed more memory than it may have'],
  ['output', { source: 'while True: emit("x")', limits: { output_kb: 1, wall_ms: 20_000 } }, 'OUTPUT_LIMIT', 'the script emitted more than 1024 bytes'],
  ['caps', { source: '', caps: { net: true } }, 'INVALID_REQUEST', 'unknown argument "caps.net"'],
  ['limits', { source: '', limits: { wall_ms: 0 } }, 'INVALID_REQUEST', 'limits.wall_ms: 0 is out of range: 1 to 60000'],
];

export const rows = [
  {
    name: 'starlark/schema',
    run: async ({ starlarkTool }) => {
      deepEqual(starlarkTool.inputSchema.required, ['source']);
      for (const [args, want] of inputs) equal(accepts(starlarkTool, args), want, JSON.stringify(args));
      const { readOnlyHint = false, destructiveHint = true, idempotentHint = false, openWorldHint = true } = starlarkTool.annotations;
      deepEqual([readOnlyHint, destructiveHint, idempotentHint, openWorldHint], [true, false, true, false]);
    },
  },
  {
    name: 'starlark/input and output',
    run: async ({ starlark }) => {
      const input = 'a\u0000b\u2028\r\nü😀';
      const reply = await starlark({ source: 'emit(read_input())', input });
      deepEqual(reply.structuredContent, { stdout: input });
      deepEqual(JSON.parse(text(reply)), reply.structuredContent);
      ok(!reply.isError);
    },
  },
  {
    name: 'starlark/either name is served',
    run: async ({ to }) => {
      for (const name of ['code.sandbox.starlark.run', 'starlark_run']) {
        deepEqual((await to.call(name, { source: 'emit("x")' })).structuredContent, { stdout: 'x' }, name);
      }
    },
  },
  ...errors.map(([name, args, code, message]) => ({
    name: `starlark/${name}`,
    run: async ({ starlark }) => {
      fails(await starlark(args), code, message);
    },
  })),
  {
    name: 'starlark/what an error tells',
    run: async ({ starlark }) => {
      const { details } = (await starlark({ source: 'def f(x):\n  return 1 // x\nemit("so far")\nf(0)' })).structuredContent;
      equal(details.position, 'script.star:2:12');
      equal(details.stdout, 'so far');
      match(details.backtrace, /script\.star:4:2: in <toplevel>\n {2}script\.star:2:12: in f\n/);
      const cut = (await starlark({ source: 'while True: emit("ü")', limits: { output_kb: 1, wall_ms: 20_000 } })).structuredContent.details;
      equal(cut.stdout, 'ü'.repeat(512));
    },
  },
  {
    name: 'starlark/the same each time',
    run: async ({ starlark }) => {
      const source = 'd = {w: hash(w) for w in read_input().split()}\nemit(str(d))\nd["nope"]';
      const first = JSON.stringify(await starlark({ source, input: 'c a b' }));
      for (let n = 0; n < 20; n++) equal(JSON.stringify(await starlark({ source, input: 'c a b' })), first);
    },
  },
];
