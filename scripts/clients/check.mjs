// Checks of replies. A failed check throws; drive.mjs reports it.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';

export const { equal, deepEqual, match, doesNotMatch, ok, rejects } = assert;

// If Ajv accepts a schema only with a warning, some client does not accept it.
const ajv = new Ajv2020({ strict: true, allErrors: true });
const compiled = new Map();

// conforms checks a reply against its tool's output schema. Both clients skip this in some cases: v2 on errors.
export function conforms(tool, reply) {
  if (!compiled.has(tool.name)) compiled.set(tool.name, ajv.compile(tool.outputSchema));
  const validate = compiled.get(tool.name);
  ok(reply.structuredContent, `no structuredContent: ${JSON.stringify(reply).slice(0, 500)}`);
  ok(validate(reply.structuredContent), ajv.errorsText(validate.errors));
}

// accepts returns whether the tool's input schema accepts args: it must neither accept what the tool refuses nor refuse what
// the tool accepts.
export function accepts(tool, args) {
  const key = `input ${tool.name}`;
  if (!compiled.has(key)) compiled.set(key, ajv.compile(tool.inputSchema));
  return compiled.get(key)(args);
}

// fails checks that a reply is an error with that code, in the common form of errors.
export function fails(reply, code, message) {
  equal(reply.isError, true, `no error: ${JSON.stringify(reply).slice(0, 500)}`);
  const error = reply.structuredContent;
  equal(error.code, code, error.message);
  if (message instanceof RegExp) match(error.message, message);
  else if (message !== undefined) equal(error.message, message);
  ok(typeof error.message === 'string' && error.message !== '', 'an error has a message');
  deepEqual(JSON.parse(text(reply)), error, 'the text is another');
}

// denied checks that a request was refused by the policy, with that reason.
export function denied(reply, reason) {
  const r = reply.structuredContent;
  equal(reply.isError, true, `not denied: ${JSON.stringify(r).slice(0, 500)}`);
  equal(r.status, 'denied');
  equal(r.exitCode, null);
  equal(r.artifactHandle, null);
  const reasons = r.policyDecision.deniedReasons;
  ok(Array.isArray(reasons) && reasons.length > 0, 'no reasons');
  if (reason instanceof RegExp) match(reasons[0], reason);
  else equal(reasons[0], reason);
  match(r.policyDecision.auditHash, /^[0-9a-f]{64}$/);
  ok(text(reply).includes(JSON.stringify(reasons[0]).slice(1, -1)), 'the text has no reason');
}

// text returns the only text block of a reply.
export function text(reply) {
  equal(reply.content.length, 1);
  equal(reply.content[0].type, 'text');
  return reply.content[0].text;
}

export const handlePattern = /^runtime-[A-Za-z0-9_-]+-[0-9]{13}-[0-9a-f]{16}$/;

// lines returns "prefix1\n" to "prefixN\n".
export const lines = (n, prefix = 'line ') => Array.from({ length: n }, (_, i) => `${prefix}${i + 1}\n`).join('');

export const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// until waits for a job to make a file; call is the call that runs the job.
export async function until(file, call) {
  let ended = false;
  const end = () => (ended = true);
  call.then(end, end);
  while (!existsSync(file)) {
    ok(!ended, `the job has ended and not made ${file}`);
    await wait(5);
  }
}
