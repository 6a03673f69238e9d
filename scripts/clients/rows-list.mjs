// The server's description of itself: its version of the protocol, its tools, their names, schemas and annotations.
import { readFileSync, readdirSync } from 'node:fs';
import { accepts, deepEqual, equal, fails, match, ok, rejects } from './check.mjs';

// Clients see what is published. The test runs this in its own directory.
const definitions = '../../mcp/testdata/definitions';
const published = readdirSync(definitions).map((file) => JSON.parse(readFileSync(`${definitions}/${file}`)));
const runtimes = published.find((tool) => tool.Name === 'runtime_execute').Input.properties.runtime.enum;

// Arguments, and whether the published input schema must accept them.
const inputs = [
  [{ repoId: 'a', runtime: 'shell' }, true], // the schema cannot say that code or args is required; the reply does
  [{ repoId: 'a', runtime: 'shell', code: '', args: [] }, true],
  [{ repoId: 'a' }, false],
  [{ runtime: 'shell' }, false],
  [{ repoId: '', runtime: 'shell' }, false],
  [{ repoId: 'a'.repeat(128), runtime: 'shell' }, true],
  [{ repoId: 'a'.repeat(129), runtime: 'shell' }, false],
  [{ repoId: 'a', runtime: 'cobol' }, false],
  [{ repoId: 'a', runtime: 'shell', surprise: 1 }, false],
  [{ repoId: 'a', runtime: 'shell', args: Array(100).fill('x') }, true],
  [{ repoId: 'a', runtime: 'shell', args: Array(101).fill('x') }, false],
  [{ repoId: 'a', runtime: 'shell', timeoutMs: 100 }, true],
  [{ repoId: 'a', runtime: 'shell', timeoutMs: 99 }, false],
  [{ repoId: 'a', runtime: 'shell', timeoutMs: 600_000 }, true],
  [{ repoId: 'a', runtime: 'shell', timeoutMs: 600_001 }, false],
  [{ repoId: 'a', runtime: 'shell', timeoutMs: 1.5 }, false],
  [{ repoId: 'a', runtime: 'shell', queryTerms: Array(10).fill('x') }, true],
  [{ repoId: 'a', runtime: 'shell', queryTerms: Array(11).fill('x') }, false],
  [{ repoId: 'a', runtime: 'shell', maxResponseLines: 9 }, false],
  [{ repoId: 'a', runtime: 'shell', maxResponseLines: 1000 }, true],
  [{ repoId: 'a', runtime: 'shell', maxResponseLines: 1001 }, false],
  [{ repoId: 'a', runtime: 'shell', persistOutput: 'yes' }, false],
  [{ repoId: 'a', runtime: 'shell', outputMode: 'intent' }, true],
  [{ repoId: 'a', runtime: 'shell', outputMode: 'all' }, false],
];

const queries = [
  [{ artifactHandle: 'a', queryTerms: ['x'] }, true],
  [{ artifactHandle: 'a', lineRange: { stream: 'stdout', startLine: 1, endLine: 2 } }, true],
  [{ queryTerms: ['x'] }, false],
  [{ artifactHandle: '', queryTerms: ['x'] }, false],
  [{ artifactHandle: '../a', queryTerms: ['x'] }, false],
  [{ artifactHandle: 'a'.repeat(257), queryTerms: ['x'] }, false],
  [{ artifactHandle: 'a', queryTerms: ['x'], maxExcerpts: 0 }, false],
  [{ artifactHandle: 'a', queryTerms: ['x'], maxExcerpts: 101 }, false],
  [{ artifactHandle: 'a', queryTerms: ['x'], contextLines: 21 }, false],
  [{ artifactHandle: 'a', queryTerms: ['x'], stream: 'all' }, false],
  [{ artifactHandle: 'a', queryTerms: ['x'], match: 'fuzzy' }, true],
  [{ artifactHandle: 'a', queryTerms: ['x'], surprise: 1 }, false],
  [{ artifactHandle: 'a', lineRange: { stream: 'both', startLine: 1, endLine: 2 } }, false],
];

export const rows = [
  {
    name: 'server/protocol version',
    run: async ({ to }) => equal(to.negotiated, to.protocol),
  },
  {
    name: 'server/name and capabilities',
    run: async ({ to }) => {
      equal(to.serverInfo.name, 'corral');
      ok(to.serverInfo.version);
      ok(to.capabilities.tools);
      equal(to.capabilities.resources, undefined);
      equal(to.capabilities.prompts, undefined);
    },
  },
  {
    name: 'server/ping',
    // 2026-07-28 has no ping: any request shows that the server responds.
    run: async ({ to }) => (to.protocol === '2026-07-28' ? to.list() : to.ping()),
  },
  {
    name: 'list/names',
    // Hosts refuse dots. An order that changes spoils the prompt caches of agents.
    run: async ({ to }) => {
      const names = to.tools.map((t) => t.name);
      const ours = (list) => list.filter((n) => n.startsWith('runtime_')).sort();
      deepEqual(ours(names), ours(published.map((tool) => tool.Name)));
      ok(names.every((n) => /^[a-z_]{1,64}$/.test(n)), names.join());
      deepEqual((await to.list()).tools, to.tools);
    },
  },
  {
    name: 'list/dotted names',
    server: 'dotted',
    run: async ({ to, execute, repo }) => {
      const names = to.tools.map((t) => t.name);
      ok(names.includes('sdl.runtime.execute') && names.includes('sdl.runtime.queryOutput'), names.join());
      equal((await execute({ repoId: repo, runtime: 'shell', code: 'true' })).structuredContent.status, 'success');
    },
  },
  {
    name: 'list/either name is served',
    run: async ({ to, repo }) => {
      for (const name of ['sdl.runtime.execute', 'runtime_execute']) {
        const reply = await to.call(name, { repoId: repo, runtime: 'shell', code: 'true' });
        equal(reply.structuredContent.status, 'success', name);
      }
      fails(await to.call('sdl.runtime.queryOutput', { artifactHandle: 'none', queryTerms: ['x'] }), 'NOT_FOUND');
    },
  },
  {
    name: 'list/input schemas',
    run: async ({ executeTool, queryTool }) => {
      deepEqual([...executeTool.inputSchema.required].sort(), ['repoId', 'runtime']);
      deepEqual(queryTool.inputSchema.required, ['artifactHandle']);
      deepEqual([...executeTool.inputSchema.properties.runtime.enum].sort(), [...runtimes].sort());
      for (const [tool, cases] of [[executeTool, inputs], [queryTool, queries]]) {
        plainObject(tool.inputSchema);
        equal(tool.inputSchema.additionalProperties, false);
        for (const property of Object.values(tool.inputSchema.properties)) ok(property.type);
        for (const [args, want] of cases) equal(accepts(tool, args), want, JSON.stringify(args).slice(0, 200));
      }
    },
  },
  {
    name: 'list/output schemas',
    run: async ({ executeTool, queryTool }) => {
      for (const { outputSchema } of [executeTool, queryTool]) {
        plainObject(outputSchema);
        deepEqual(outputSchema.required ?? [], [], 'an error has none of the fields of a result');
        for (const name of ['code', 'message', 'details']) ok(outputSchema.properties[name], name);
      }
    },
  },
  {
    name: 'list/annotations, titles, descriptions',
    run: async ({ executeTool, queryTool }) => {
      for (const tool of [executeTool, queryTool]) {
        ok(tool.title ?? tool.annotations.title, 'no title');
        ok(Buffer.byteLength(tool.description) <= 2048, 'a long description');
      }
      const hints = ({ readOnlyHint = false, destructiveHint = true, idempotentHint = false, openWorldHint = true }) =>
        [readOnlyHint, destructiveHint, idempotentHint, openWorldHint];
      // A job may delete the repository; without a network its world is closed.
      deepEqual(hints(executeTool.annotations), [false, true, false, false]);
      deepEqual(hints(queryTool.annotations), [true, false, true, false]);
      for (const mode of ['minimal', 'summary', 'intent']) match(executeTool.description, new RegExp(mode));
    },
  },
  {
    name: 'list/unknown tool',
    run: ({ to }) => rejects(to.call('runtime_exec', {}), { code: -32602 }),
  },
];

// plainObject: hosts refuse a schema whose root is anything else.
function plainObject(schema) {
  equal(schema.type, 'object');
  for (const key of ['anyOf', 'oneOf', 'allOf', 'not', '$ref', 'if']) equal(schema[key], undefined, key);
}
