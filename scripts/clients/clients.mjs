// The official TypeScript clients behind one small interface, so that every row of the contract runs with each of them: v1
// (@modelcontextprotocol/sdk), and v2 (@modelcontextprotocol/client) in both of its eras.
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as StdioV1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioV2 } from '@modelcontextprotocol/client/stdio';

const us = { name: 'corral-clients', version: '1.0.0' };

// kinds defines how each client is made, and which version of the protocol it must negotiate.
export const kinds = {
  v1: { make: () => new ClientV1(us), Stdio: StdioV1, Http: HttpV1, protocol: '2025-11-25' },
  'v2-2025': { make: () => new ClientV2(us), Stdio: StdioV2, Http: HttpV2, protocol: '2025-11-25' },
  'v2-2026': {
    make: () => new ClientV2(us, { versionNegotiation: { mode: 'auto' } }),
    Stdio: StdioV2,
    Http: HttpV2,
    protocol: '2026-07-28',
  },
};

// connect returns a connection to server, {command, args, env} or {url, token}. Its list of tools has been read: the
// clients check structuredContent against the output schemas of the tools that they have seen, and of no others.
export async function connect(kind, server) {
  const { make, Stdio, Http, protocol } = kinds[kind];
  const client = make();
  const transport = server.url
    ? new Http(new URL(server.url), { requestInit: { headers: { Authorization: `Bearer ${server.token}` } } })
    : new Stdio({ command: server.command, args: server.args, env: server.env, cwd: server.cwd, stderr: 'inherit' });
  // The clients report the negotiated version to their transport; v1 reports it nowhere else.
  let negotiated;
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    negotiated = version;
    tell?.(version);
  };
  await client.connect(transport);
  const { tools } = await client.listTools();
  const call = kind === 'v1'
    ? (params, options) => client.callTool(params, undefined, options)
    : (params, options) => client.callTool(params, options);
  return {
    kind,
    protocol,
    tools,
    transport,
    serverInfo: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    negotiated: client.getNegotiatedProtocolVersion?.() ?? negotiated,
    call: (name, args, options = {}) => call({ name, arguments: args }, { timeout: 120_000, ...options }),
    list: () => client.listTools(),
    ping: () => client.ping(),
    close: async () => {
      if (server.url) await transport.terminateSession?.();
      await client.close();
    },
  };
}
