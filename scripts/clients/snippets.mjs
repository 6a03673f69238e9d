// Snippets extracts the configurations of agent hosts from a page of the documentation, and handles each as the host does:
// parse it, start the command or connect to the address that it names, and list the tools. It reads orders as JSON from
// standard input:
//
//	page        the file
//	corral      the program to run instead of corral; dir: the repository instead of the page's, and cwd of the command
//	url, token  of a server over HTTP
//
// It writes one line per snippet, {"row", "error"}, then {"rows": how many}.
import { readFileSync } from 'node:fs';
import { parse as parseTOML } from 'smol-toml';
import { parse as parseYAML } from 'yaml';
import { equal, ok } from './check.mjs';
import { connect } from './clients.mjs';

const orders = JSON.parse(await new Response(process.stdin).text());
const page = readFileSync(orders.page, 'utf8');

// parsers, by the word after the fence. A shell snippet is one command line; of its syntax, only quotes and one variable are
// supported.
const parsers = { json: JSON.parse, toml: parseTOML, yaml: parseYAML, sh: parseCommandLine };

function parseCommandLine(line) {
  const words = line.trim().match(/"[^"]*"|[^\s"]+/g).map((w) => w.replaceAll('"', ''));
  const end = words.indexOf('--');
  if (end >= 0) return { command: words[end + 1], args: words.slice(end + 2) };
  const header = words[words.indexOf('--header') + 1];
  const [name, value] = header.split(': ');
  return { url: words.find((w) => w.startsWith('http://')), headers: { [name]: value } };
}

// servers returns the servers in a parsed snippet, at any depth.
function servers(value) {
  if (typeof value !== 'object' || value === null) return [];
  if (value.command || value.cmd || value.url || value.uri) return [value];
  return Object.values(value).flatMap(servers);
}

// real replaces names on the page by those of this machine.
function real(text) {
  return text
    .replaceAll('/home/ada/app', orders.dir)
    .replaceAll('${workspaceFolder}', orders.dir)
    .replaceAll(/\$\{[^}]*token\}|\$CORRAL_TOKEN|THE-TOKEN/gi, orders.token);
}

// resolve returns the argument of connect.
function resolve(server) {
  const url = server.url ?? server.uri;
  if (url) {
    equal(url, 'http://127.0.0.1:7070/mcp');
    const authorization = server.headers?.Authorization ?? `Bearer ${real(`\${${server.bearer_token_env_var}}`)}`;
    return { url: orders.url, token: real(authorization).replace(/^Bearer /, '') };
  }
  let [command, ...args] = [server.command ?? server.cmd, ...server.args];
  if (command === 'ssh') [command, ...args] = args.slice(2); // the command for the other machine
  ok(['corral', '/usr/local/bin/corral'].includes(command), command);
  return { command: orders.corral, args: args.map(real), cwd: orders.dir, env: { ...process.env, ...server.env } };
}

let heading = '', count = 0;
for (const block of page.matchAll(/^#+ (.*)$|^```(\w+)\n([\s\S]*?)^```$/gm)) {
  if (block[1]) heading = block[1];
  if (!parsers[block[2]]) continue;
  const row = `${heading}/${block[2]} ${++count}`;
  let error = null;
  try {
    const found = servers(parsers[block[2]](block[3]));
    ok(found.length > 0 || /permissions/.test(block[3]), 'no server in it');
    for (const server of found) {
      const at = resolve(server);
      const to = await connect('v1', at);
      const want = at.args?.includes('agent') ? 'run' : 'runtime_execute';
      ok(to.tools.some((t) => t.name === want), `no ${want}`);
      await to.close();
    }
  } catch (e) {
    error = e.stack ?? String(e);
  }
  process.stdout.write(`${JSON.stringify({ row, error })}\n`);
}
process.stdout.write(`${JSON.stringify({ rows: count })}\n`);
process.exit(0);
