// Polls while the user is active. A dashboard that was left open must not keep its session alive.
import { Problem } from './api.js';

const IDLE_MS = 10 * 60_000;
let active = Date.now();
for (const kind of ['pointerdown', 'pointermove', 'keydown', 'scroll']) {
  addEventListener(kind, () => { active = Date.now(); }, { passive: true, capture: true });
}

/** Runs `look` now and then every `everyMs`, one at a time, until the signal aborts. Returns a function
 *  that runs it at once. */
export function poll(look, everyMs, signal) {
  let timer;
  let running = false;
  const turn = async () => {
    clearTimeout(timer);
    if (running) return;
    running = true;
    const watched = !document.hidden && Date.now() - active < IDLE_MS;
    try {
      if (watched) await look();
    } catch (error) {
      // The banner reports a lost connection, and an aborted request is not an error.
      if (!(error instanceof Problem) && error.name !== 'AbortError') throw error;
    } finally {
      running = false;
      if (!signal.aborted) timer = setTimeout(turn, everyMs);
    }
  };
  signal.addEventListener('abort', () => clearTimeout(timer));
  turn();
  return turn;
}
