// Drive runs every row of the contract with one of the official clients, over one transport. It reads its orders as JSON from
// standard input:
//
//	client     v1, v2-2025, v2-2026
//	servers    by name: {command, args, env} or {url, token}
//	repo, dir  id and directory of the repository that they serve
//	state      XDG_STATE_HOME of the servers
//	absent     {runtime, executable}: a program that the runtime could use, and that this machine lacks
//	short      only rows about messages between client and server, not those about what a job does
//
// and writes one line per row, {"row", "error", "ms"}, then {"rows": how many}. Rows run one after the other, except for those
// marked as slow, which begin first and are awaited last.
import { setMaxListeners } from 'node:events';
import { connect } from './clients.mjs';
import { conforms } from './check.mjs';
import { rows as listing } from './rows-list.mjs';
import { rows as requests } from './rows-execute.mjs';
import { rows as output } from './rows-output.mjs';
import { rows as policy } from './rows-policy.mjs';
import { rows as programs } from './rows-starlark.mjs';

const orders = JSON.parse(await new Response(process.stdin).text());
setMaxListeners(50);
// A row that fails leaves calls behind that are never awaited.
process.on('unhandledRejection', () => {});
const connections = new Map();

// connection returns the one connection to the named server.
function connection(name) {
  if (!connections.has(name)) connections.set(name, connect(orders.client, orders.servers[name]));
  return connections.get(name);
}

// bench returns the argument of a row: its server's tools by their short names, and the orders. Each reply is compared with the
// schema that its tool published.
async function bench(server) {
  const to = await connection(server);
  const tool = (name) => to.tools.find((t) => t.name.replaceAll('.', '_').toLowerCase().endsWith(name));
  const call = (definition) => async (args, options) => {
    const reply = await to.call(definition.name, args, options);
    conforms(definition, reply);
    return reply;
  };
  const execute = call(tool('runtime_execute'));
  return {
    ...orders,
    to,
    connection,
    executeTool: tool('runtime_execute'),
    queryTool: tool('output'),
    execute: (args, options) => execute({ repoId: orders.repo, ...args }, options),
    shell: async (code, args, options) =>
      (await execute({ repoId: orders.repo, runtime: 'shell', code, ...args }, options)).structuredContent,
    query: call(tool('output')),
    starlarkTool: tool('starlark_run'),
    starlark: call(tool('starlark_run')),
  };
}

async function run(row) {
  const started = performance.now();
  let error = null;
  try {
    await row.run(await bench(row.server ?? 'default'));
  } catch (e) {
    error = e.stack ?? String(e);
  }
  const ms = Math.round(performance.now() - started);
  process.stdout.write(`${JSON.stringify({ row: row.name, error, ms })}\n`);
}

const transport = orders.servers.default.url ? 'http' : 'stdio';
// aboutMessages matches the rows in which client, version of the protocol and transport matter, beside those of the list.
const aboutMessages = /^(cancel\/|progress$|input\/(unknown|neither|at its bounds)|status\/(success|failure)$|query\/(match with context|errors)$|starlark\/(input and output|what an error tells)$|denied\/)/;
const rows = [...listing, ...requests, ...output, ...policy, ...programs].filter((row) => !row.only || row.only === transport)
  .filter((row) => !orders.short || row.only || listing.includes(row) || aboutMessages.test(row.name));
const slow = rows.filter((row) => row.slow).map(run);
for (const row of rows.filter((row) => !row.slow)) await run(row);
await Promise.all(slow);
for (const to of connections.values()) await (await to.catch(() => undefined))?.close();
process.stdout.write(`${JSON.stringify({ rows: rows.length })}\n`);
process.exit(0); // even if a client has left something open
