// All requests go through here: to /api/v1, with a header that a form on another site cannot send.

const BASE = '/api/v1';
const TIMEOUT_MS = 15_000;

/** A problem document (RFC 9457), or no response at all (`status` 0). */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? document.title ?? 'no response');
    this.status = status;
    this.document = document;
  }

  get offline() {
    return this.status === 0;
  }
}

let onSignedOut = () => {};

/** Sets what happens when the session has ended. */
export function whenSignedOut(act) {
  onSignedOut = act;
}

async function call(method, path, { query, body, signal, headers = {}, quiet401 = false } = {}) {
  const url = new URL(BASE + path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, value);
  }
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const request = {
    method,
    headers: { 'x-postrider': '1', ...headers },
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    credentials: 'same-origin',
  };
  if (body !== undefined) {
    request.headers['content-type'] = 'application/json';
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    const detail = error.name === 'TimeoutError'
      ? 'The server did not respond in time. If you were making a change, check whether it took effect before you repeat it.'
      : 'Cannot reach the server. Check that it is running and that your network is up.';
    throw new Problem(0, { title: 'No response', detail });
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = new Problem(response.status, await response.json().catch(() => ({ title: response.statusText })));
  if (response.status === 401 && !quiet401) onSignedOut();
  throw problem;
}

export const get = (path, query, signal, options) => call('GET', path, { query, signal, ...options });
export const post = (path, body = {}, headers = {}) => call('POST', path, { body, headers });
export const put = (path, body) => call('PUT', path, { body });
export const remove = (path) => call('DELETE', path);

/** A 401 here means a wrong token, not the end of a session. */
export const signIn = (token) => call('POST', '/session', { body: { token }, quiet401: true });

export const outboxPath = (outbox, ...rest) =>
  ['/outboxes', encodeURIComponent(outbox), ...rest].join('/');

/** The URL of a download. */
export function href(path, query) {
  const url = new URL(BASE + path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) if (value) url.searchParams.set(name, value);
  return url.pathname + url.search;
}
