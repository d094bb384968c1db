// The statistics of all outboxes, pushed by the server. One connection for the whole page.
import { get } from './api.js';
import { serverTime } from './time.js';

const WAIT_MS = [1_000, 2_000, 4_000, 8_000, 15_000];
/** No event for so long, although the connection looks open: it is dead. */
const SILENT_MS = 40_000;
/** How long a tab keeps its stream after it was hidden. */
const UNSEEN_MS = 30_000;
/** What charts remember beyond the server's own samples. */
const REMEMBERED = 900;

const listeners = new Set();
const points = [];
let stream = null;
let failures = 0;
let timer = null;
let watchdog = null;
/** Somebody is signed in and looks. */
let wanted = false;

/** `state` is connecting, live, or offline; `snapshot` is the newest that came. */
export const live = { state: 'connecting', snapshot: null, points };

/** Calls with (live, reconnected) at each change, until the signal ends it. */
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

/** A stream does not say why it ended: a question does. A 401 leads to the sign-in. */
function retryLater() {
  const wait = WAIT_MS[Math.min(failures, WAIT_MS.length - 1)];
  failures += 1;
  live.state = 'offline';
  tell();
  timer = setTimeout(async () => {
    try {
      // Where too many watch already, this is what there is until a place is free.
      live.snapshot = await get('/outboxes');
      connect();
    } catch (problem) {
      if (problem.status !== 401) retryLater();
    }
  }, wait);
}

addEventListener('online', () => live.state === 'offline' && connect());

/** A browser opens six connections to a server, and a stream holds one: a tab that nobody looks at,
 *  and a page that is only kept for the way back, give theirs up. Otherwise the seventh waits. */
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
