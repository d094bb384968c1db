// The statistics of all outboxes, pushed by the server over one connection for the whole dashboard.
import { get } from './api.js';
import { serverTime } from './time.js';

const WAIT_MS = [1_000, 2_000, 4_000, 8_000, 15_000];
/** After this long without an event, the connection is considered lost even if it looks open. */
const SILENT_MS = 40_000;
/** How long a hidden tab keeps its stream. */
const UNSEEN_MS = 30_000;
/** The number of snapshots kept for the charts, in addition to the server's samples. */
const REMEMBERED = 900;

const listeners = new Set();
const points = [];
let stream = null;
let failures = 0;
let timer = null;
let watchdog = null;
/** Whether a user is signed in, so that a stream is needed. */
let wanted = false;

/** `state` is connecting, live, or offline; `snapshot` is the latest one received. */
export const live = { state: 'connecting', snapshot: null, points };

/** Calls `listener(live, reconnected)` on each change, until the signal aborts. */
export function watch(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener('abort', () => listeners.delete(listener));
  if (live.snapshot) listener(live, false);
}

function tell(reconnected = false) {
  for (const listener of [...listeners]) listener(live, reconnected);
}

function receive(event) {
  const before = live.state;
  live.snapshot = JSON.parse(event.data);
  live.state = 'live';
  failures = 0;
  serverTime(live.snapshot.at);
  points.push({ at: Date.parse(live.snapshot.at), outboxes: live.snapshot.outboxes });
  if (points.length > REMEMBERED) points.shift();
  guard();
  tell(before === 'offline');
}

function guard() {
  clearTimeout(watchdog);
  watchdog = setTimeout(lost, SILENT_MS);
}

export function connect() {
  wanted = true;
  clearTimeout(timer);
  stream?.close();
  stream = new EventSource('/api/v1/stream');
  stream.addEventListener('outboxes', receive);
  stream.addEventListener('error', lost);
  guard();
}

export function disconnect() {
  wanted = false;
  rest();
  live.state = 'connecting';
  live.snapshot = null;
  points.length = 0;
}

function lost() {
  if (!stream) return;
  stream.close();
  stream = null;
  clearTimeout(watchdog);
  retryLater();
}

/** A stream does not report why it ended, but a request does: a 401 leads to the sign-in. */
function retryLater() {
  const wait = WAIT_MS[Math.min(failures, WAIT_MS.length - 1)];
  failures += 1;
  live.state = 'offline';
  tell();
  timer = setTimeout(async () => {
    try {
      // If the server has no room for another stream, the data from this request is shown meanwhile.
      live.snapshot = await get('/outboxes');
      connect();
    } catch (problem) {
      if (problem.status !== 401) retryLater();
    }
  }, wait);
}

addEventListener('online', () => live.state === 'offline' && connect());

/** A browser opens at most six connections to a server, and each stream uses one. Hidden tabs, and pages
 *  kept only for the Back button, therefore close theirs; otherwise a seventh tab could not load. */
function rest() {
  clearTimeout(timer);
  clearTimeout(watchdog);
  stream?.close();
  stream = null;
}

let unseen = null;
document.addEventListener('visibilitychange', () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(rest, UNSEEN_MS);
  else if (!stream && wanted) connect();
});
addEventListener('pagehide', rest);
addEventListener('pageshow', (event) => event.persisted && wanted && connect());
